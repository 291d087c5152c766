// What earlier versions saved goes on: a run of commit a86533e is resumed and takes the same steps as with that
// program.
//
// Everything is computed by the reference kernels in fp32, whose bits are the same on every CPU. The folder's README
// says how it was made.
#include <algorithm>
#include <fstream>

#include "support/golden_root.h"
#include "support/temp_folder.h"
#include "support/trainer_runs.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/io/safetensors.h"
#include "nought/train/trainer.h"

namespace nought::earlier_version_test {
namespace {

namespace fs = std::filesystem;
using test::TempFolder;
using testing::IsEmpty;

const fs::path kSaved = fs::path(test::golden_root()).parent_path() / "train/checkpoints/a86533e";

/// Resumes the saved run in `folder` with two ranks.
test::ToldRun resume_in(const TempFolder& folder, int stage) {
  fs::create_directories(folder / "out");
  fs::copy(kSaved / "checkpoint-4", folder / "out/checkpoint-4");
  const std::vector<std::string> overrides{fmt::format("data.files=[\"{}\"]", (kSaved / "text.txt").string()),
                                           fmt::format("training.output_dir={}", (folder / "out").string()),
                                           "training.save_steps=0",
                                           fmt::format("deepspeed.zero_optimization.stage={}", stage)};
  const RunConfig config = load_run_config((kSaved / "RUN.json").string(), overrides);
  const RunPlan plan = resolve_run(config, 2, StartMode::resume);
  return test::run_plan(
      plan, {.ranks = 2, .mode = StartMode::resume, .contexts = {Context::reference(), Context::reference()}});
}

/// The losses of the steps behind the checkpoint, as that program wrote them.
std::vector<double> saved_losses() {
  std::vector<double> losses;
  std::ifstream lines(kSaved / "resumed/metrics.jsonl");
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json json = nlohmann::json::parse(line);
    if (json.at("step") > 4) losses.push_back(json.at("loss"));
  }
  return losses;
}

void expect_same_tensors(const fs::path& actual, const fs::path& expected) {
  const SafetensorsFile now(actual), then(expected);
  ASSERT_GT(then.entries().size(), 0u);
  EXPECT_EQ(now.entries().size(), then.entries().size());
  for (const TensorEntry& entry : then.entries()) {
    const TensorEntry& same = now.at(entry.name);
    EXPECT_EQ(same.dtype, entry.dtype) << entry.name;
    EXPECT_TRUE(std::ranges::equal(now.raw(same), then.raw(entry))) << entry.name;
  }
}

TEST(EarlierVersion, a_run_of_a86533e_resumes_bit_for_bit) {
  const std::vector<double> expected = saved_losses();
  ASSERT_EQ(expected.size(), 4u);
  for (const int stage : {2, 3}) {
    SCOPED_TRACE(fmt::format("stage {}", stage));
    const TempFolder folder;
    const test::ToldRun told = resume_in(folder, stage);
    EXPECT_EQ(told.summary.first_step, 4);
    EXPECT_THAT(told.summary.notes, IsEmpty()) << "it goes on as if it had never stopped";
    EXPECT_EQ(told.losses(), expected);
    expect_same_tensors(folder / "out/model.safetensors", kSaved / "resumed/model.safetensors");
  }
}

}  // namespace
}  // namespace nought::earlier_version_test
