// `nought train --device cuda`, on the emulated GPU: what a user runs.
#include "support/program_runs.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::test::program_test {
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

TEST(CudaProgram, ranks_that_are_processes_train_on_gpus_as_on_the_cpu) {
  const TempFolder at_cpu, at_gpu;
  write_run(at_cpu);
  write_run(at_gpu);
  const std::vector<double> cpu = losses_with(at_cpu, "--ranks 2");
  const Ended ended = run_program(train_command(at_gpu, "--ranks 2 --device cuda"));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("collectives: through the host: ranks 0 and 1 share cuda:0"));
  const std::vector<double> gpu = losses_of(at_gpu);
  ASSERT_EQ(cpu.size(), 6);
  ASSERT_EQ(gpu.size(), 6);
  for (size_t i = 0; i < cpu.size(); ++i) EXPECT_NEAR(gpu[i], cpu[i], 2e-5) << i;
}

TEST(CudaProgram, evaluates_and_generates_on_a_gpu_as_on_the_cpu) {
  const TempFolder folder;
  write_run(folder);
  folder.write("short.txt",
               "for (int i = 1; i < 17; ++i) sum += table[i]; // and what comes behind it, in another line\n");
  losses_with(folder, "");
  const auto said = [&](const std::string& command) {
    const Ended ended = run_program(fmt::format("{} {}", kProgram, command));
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return ended.out;
  };
  const std::string out = (folder / "out").string();
  const std::string eval =
      fmt::format("eval {} {} --json --data {}", out, (folder / "run.json").string(), (folder / "short.txt").string());
  const auto loss_of = [&](const std::string& device) {
    return nlohmann::json::parse(said(eval + device)).at("loss").get<double>();
  };
  EXPECT_NEAR(loss_of(" --device cuda"), loss_of(""), 2e-5);
  const std::string generate = fmt::format("generate {} --prompt 'for (int' --temperature 0 --max-new-tokens 12", out);
  EXPECT_EQ(said(generate + " --device cuda"), said(generate));
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
  EXPECT_THAT(said("--collectives ring"), HasSubstr("--collectives ring: expected auto, nccl, nccl-sums or host"));
  EXPECT_THAT(said("--collectives nccl"), HasSubstr("--collectives nccl says how tensors travel between GPUs"));
  EXPECT_THAT(said("--ranks 2 --device cuda --collectives nccl"),
              HasSubstr("the devices of the ranks cannot be linked: ranks 0 and 1 share cuda:0"));
  EXPECT_THAT(said("--device cuda:7"), HasSubstr("cuda:7 is not there: the machine has 1 devices"));
}

TEST(CudaProgram, states_and_parameters_leave_the_gpu_and_change_no_loss) {
  const TempFolder stays, leaves;
  write_run(stays);
  write_run(leaves);
  const std::string command = "--device cuda --set training.bf16=true --set deepspeed.zero_optimization.stage=3 ";
  const std::string zero = "--set deepspeed.zero_optimization.";
  const std::vector<double> all_there = losses_with(stays, command);
  const std::vector<double> moved = losses_with(
      leaves, command + zero + "offload_optimizer.device=cpu " + zero + "offload_param.device=nvme " + zero +
                  "offload_param.max_in_cpu=0 " + zero + "offload_param.nvme_path=" + leaves.path().string());
  ASSERT_EQ(moved.size(), 6);
  EXPECT_EQ(moved, all_there);
}

TEST(CudaProgram, plans_as_on_a_gpu_and_says_what_is_a_limit) {
  const TempFolder folder;
  write_run(folder);
  const auto said = [&](const std::string& more) {
    const Ended ended = run_program(fmt::format("{} plan {} {}", kProgram, (folder / "run.json").string(), more));
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return ended.out;
  };
  const std::string text = said("--device cuda --set deepspeed.zero_optimization.offload_optimizer.device=cpu");
  EXPECT_THAT(text, HasSubstr("note: as on a GPU"));
  EXPECT_THAT(text, HasSubstr("32.0 MiB"));
  EXPECT_THAT(text, HasSubstr("host: optimizer"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("the peak is"))) << "what this machine can do says nothing";
  const auto json = nlohmann::json::parse(said("--json --device cuda:3"));
  EXPECT_EQ(json.at("device"), "cuda");
  EXPECT_EQ(json.at("peak_flops"), 0);
}

TEST(CudaProgram, talks_and_measures_steps_on_a_gpu) {
  const TempFolder folder;
  write_run(folder);
  losses_with(folder, "");
  const auto said = [&](const std::string& command) {
    const Ended ended = run_program(command);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return ended.out;
  };
  const std::string chat = fmt::format(
      "echo 'for (int' | {} chat {} --chat-template chatml --temperature 0 "
      "--max-new-tokens 8 --context 56",
      kProgram, (folder / "out").string());
  EXPECT_EQ(said(chat + " --device cuda"), said(chat));
  const auto json = nlohmann::json::parse(
      said(fmt::format("{} bench step {} --samples 1 --json --device cuda", kProgram, (folder / "run.json").string())));
  const auto figure = json.at("figures").at(0);
  EXPECT_GT(figure.at("rate"), 0);
  EXPECT_FALSE(figure.contains("limit")) << "what this machine can do does not limit a GPU";
}

}  // namespace
}  // namespace nought::test::program_test
