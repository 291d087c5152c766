// What would stop a run is found before it starts.
#include "support/temp_folder.h"
#include "support/tiny_llama.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/train/trainer.h"

namespace nought {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::TempFolder;
using testing::HasSubstr;

RunPlan plan_in(const TempFolder& folder) {
  RunPlan plan;
  plan.model_config = test::tiny_llama_json();
  plan.data.sources = {{{folder.write("text.txt", std::string(500, 'x')).string()}}};
  plan.data.seq_length = 16;
  plan.output_dir = (folder / "out").string();
  return plan;
}

std::string refusal(const RunPlan& plan, StartMode mode = StartMode::fresh) {
  return message_of<Error>([&] { validate_run(plan, mode); });
}

TEST(ValidateRun, makes_the_output_folder_and_leaves_nothing_else_behind) {
  const TempFolder folder;
  EXPECT_EQ(refusal(plan_in(folder)), "");
  EXPECT_TRUE(fs::is_directory(folder / "out"));
  EXPECT_TRUE(fs::is_empty(folder / "out"));
}

TEST(ValidateRun, what_the_plan_lacks_is_named) {
  const TempFolder folder;
  RunPlan plan = plan_in(folder);
  plan.model_config = nullptr;
  EXPECT_THAT(refusal(plan), HasSubstr("model is missing"));
  plan = plan_in(folder);
  plan.data.sources.clear();
  EXPECT_THAT(refusal(plan), HasSubstr("data.files is empty"));
  plan = plan_in(folder);
  plan.data.seq_length = 0;
  EXPECT_THAT(refusal(plan), HasSubstr("data.seq_length"));
}

TEST(ValidateRun, the_model_must_have_every_id_of_the_tokenizer) {
  const TempFolder folder;
  RunPlan plan = plan_in(folder);
  plan.model_config["vocab_size"] = 255;
  EXPECT_THAT(refusal(plan), HasSubstr("at least 256"));
}

TEST(ValidateRun, data_and_output_must_be_there) {
  const TempFolder folder;
  RunPlan plan = plan_in(folder);
  plan.data.sources = {{{(folder / "none.txt").string()}}};
  EXPECT_THAT(refusal(plan), HasSubstr("none.txt"));
  plan = plan_in(folder);
  plan.output_dir = folder.write("file", "x").string();
  EXPECT_THAT(refusal(plan), HasSubstr("training.output_dir"));
  plan = plan_in(folder);
  EXPECT_THAT(refusal(plan, StartMode::resume), HasSubstr("nothing to resume"));
}

TEST(ValidateRun, a_capacity_is_for_models_with_experts) {
  const TempFolder folder;
  RunPlan plan = plan_in(folder);
  plan.moe_capacity_factor = 1.5;
  EXPECT_THAT(refusal(plan), HasSubstr("a llama model has no experts"));
}

TEST(ValidateRun, a_profile_goes_to_a_file_that_can_be_written) {
  const TempFolder folder;
  RunPlan plan = plan_in(folder);
  plan.profile = ProfileOptions{};
  plan.profile->output_file = folder.path().string();
  EXPECT_THAT(refusal(plan), HasSubstr("is a folder: name a file in it"));
  plan.profile->output_file = (folder / "more/profile.txt").string();
  EXPECT_EQ(refusal(plan), "");
  EXPECT_TRUE(fs::is_directory(folder / "more"));
}

}  // namespace
}  // namespace nought
