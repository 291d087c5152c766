// `nought train --device cuda`, on the emulated GPU: what a user runs.
#include "support/program_runs.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::test {
namespace {

using ::testing::HasSubstr;

std::vector<double> losses_with(const TempFolder& folder, const std::string& more) {
  const Ended ended = run_program(train_command(folder, more));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  return losses_of(folder);
}

TEST(CudaProgram, trains_on_a_gpu_as_on_the_cpu_and_resumes) {
  const TempFolder at_cpu, at_gpu;
  write_run(at_cpu);
  write_run(at_gpu);
  const std::vector<double> cpu = losses_with(at_cpu, ""), gpu = losses_with(at_gpu, "--device cuda");
  ASSERT_EQ(cpu.size(), 6);
  ASSERT_EQ(gpu.size(), 6);
  for (size_t i = 0; i < cpu.size(); ++i) EXPECT_NEAR(gpu[i], cpu[i], 2e-5) << i;
  const std::vector<double> again = losses_with(at_gpu, "--device cuda:0 --resume 4 --overwrite");
  ASSERT_GE(again.size(), 2);
  EXPECT_EQ(std::vector<double>(again.end() - 2, again.end()), std::vector<double>(gpu.end() - 2, gpu.end()))
      << "a resumed run goes on with the same bits";
}

TEST(CudaProgram, what_is_not_there_is_refused_by_name) {
  const TempFolder folder;
  write_run(folder);
  const auto said = [&](const std::string& more) {
    const Ended ended = run_program(train_command(folder, more));
    EXPECT_EQ(ended.exit_code, 1) << more;
    return ended.err;
  };
  EXPECT_THAT(said("--device gpu"), HasSubstr("--device gpu: expected cpu, cuda or cuda:N"));
  EXPECT_THAT(said("--device cuda:7"), HasSubstr("cuda:7 is not there: the machine has 1 devices"));
  EXPECT_THAT(said("--device cuda --set deepspeed.zero_optimization.offload_optimizer.device=cpu"),
              HasSubstr("--device cuda:0: deepspeed.zero_optimization.offload_optimizer is not there for GPUs yet"));
}

}  // namespace
}  // namespace nought::test
