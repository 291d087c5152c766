// `nought probe` agrees with the golden data, over processes too.
#include "support/golden.h"
#include "support/known_paths.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include <gtest/gtest.h>

#include "nought/kernels/kernels.h"

namespace nought::golden_probe_test {
namespace {

using test::Ended;
using test::run_program;
using test::TempFolder;

const std::string kProgram = test::known_path("nought");

/// The golden batch of a family, as the program computes it with these arguments.
void expect_golden_probe(const std::string& family, const std::string& arguments) {
  TempFolder folder;
  const std::string model = test::golden_folder(family), out = (folder / "out.safetensors").string();
  const Ended run = run_program(fmt::format("{} probe {} --input {}/golden.safetensors --output {} --grads {}",
                                            kProgram, model, model, out, arguments));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Context context = Context::reference();
  const SafetensorsFile actual(out), expected(model + "/golden.safetensors");
  EXPECT_EQ(actual.entries().size() + 2, expected.entries().size());
  for (const TensorEntry& entry : actual.entries()) {
    const Tensor have = actual.load(entry.name, *context.memory), want = expected.load(entry.name, *context.memory);
    EXPECT_EQ(have.shape(), want.shape()) << entry.name;
    if (entry.name == "logits") {
      EXPECT_LE(test::difference(have, want).max_abs, 5e-5);
    } else if (entry.name == "loss") {
      EXPECT_NEAR(have.item(), want.item(), 5e-6);
    } else {
      test::expect_gradient_close(entry.name, have, want, 5e-5);
    }
  }
}

TEST(Runs, probe_agrees_with_the_golden_data_over_processes) {
  expect_golden_probe("open/gpt2", "--ranks 2 --set deepspeed.zero_optimization.stage=3");
}

TEST(Runs, probe_agrees_with_the_golden_data_over_pipeline_stages) {
  const std::string pipeline =
      "--set deepspeed.train_micro_batch_size_per_gpu=1 --set deepspeed.gradient_accumulation_steps=2 "
      "--set training.parallelism_config.pp_size={} --ranks {} "
      "--set training.parallelism_config.pipeline_parallel_schedule={}";
  expect_golden_probe("open/qwen3", fmt::format(fmt::runtime(pipeline), 4, 4, "ZBH1"));
  expect_golden_probe("open/mixtral", fmt::format(fmt::runtime(pipeline), 2, 2, "ZBVZeroBubble"));
}

}  // namespace
}  // namespace nought::golden_probe_test
