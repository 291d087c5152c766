// A run of DeepSpeed or FSDP2 that goes on here has the losses that torch has of five more steps
// (tests/golden/foreign/make.py).
#include <filesystem>
#include <fstream>
#include <string>

#include "support/golden_root.h"
#include "support/message_of.h"
#include "support/size.h"
#include "support/temp_folder.h"
#include "support/trainer_runs.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/json.h"
#include "nought/checkpoint/checkpoint_folders.h"
#include "nought/train/validate_run.h"
#include "nought/weights/foreign_states.h"

namespace nought::foreign_resume_test {
namespace {

NOUGHT_FILE_SIZE(small);

namespace fs = std::filesystem;
using test::message_of;
using test::TempFolder;
using testing::HasSubstr;

fs::path golden(const std::string& name) { return fs::path(test::golden_root()) / "foreign" / name; }

Json further() {
  std::ifstream file(golden("further.json"));
  return Json::parse(file);
}

/// The plan of a run that goes on from a golden folder. Each sample but the last is the sequence of further.json; the
/// last ends in the token that ends a text, and is not among those few of 400 that a run draws.
RunPlan plan_from(const std::string& name, const TempFolder& folder) {
  constexpr int kLetters = 13;
  const Json json = further();
  std::string text, vocab;
  for (int repeat = 0; repeat < 400; ++repeat)
    for (const int id : json.at("ids")) text += static_cast<char>('a' + id);
  for (int i = 0; i < kLetters; ++i)
    vocab += fmt::format("{}\"{}\": {}", i == 0 ? "" : ", ", static_cast<char>('a' + i), i);
  folder.write("tokenizer.json", R"({"version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": null,
    "post_processor": null, "decoder": null, "model": {"type": "BPE", "merges": [], "vocab": {)" +
                                     vocab + "}}}");
  folder.write("tokenizer_config.json", R"({"eos_token": "m"})");  // a letter that no sample has
  RunPlan plan;
  plan.model_dir = golden(name).string();
  plan.data.tokenizer = folder.path().string();
  plan.data.sources = {{{folder.write("text.txt", text).string()}}};
  plan.layout.seq_length = std::ssize(json.at("ids"));
  plan.layout.micro_batch = 1;
  plan.layout.sharding.optimizer.weight_decay = json.at("weight_decay");
  plan.schedule = {.type = ScheduleType::constant, .peak_lr = json.at("lr")};
  plan.output_dir = (folder / "out").string();
  plan.gradient_clipping = 0;
  plan.max_steps = 7, plan.save_steps = 0;
  plan.resume_from = golden(name).string();
  return plan;
}

class ForeignResume : public testing::TestWithParam<const char*> {};

TEST_P(ForeignResume, five_more_steps_have_the_losses_of_torch) {
  const Json expected = further().at("losses").at(GetParam());
  for (const auto& [ranks, stage] : {std::pair{1, 0}, std::pair{2, 3}}) {
    const TempFolder folder;
    RunPlan plan = plan_from(GetParam(), folder);
    plan.layout.zero_stage = stage;
    plan.layout.sharding.policy = Policy::stage(stage);
    const test::ToldRun run = test::run_plan(plan, {.ranks = ranks, .mode = StartMode::resume});
    ASSERT_EQ(run.steps.size(), 5U);
    EXPECT_EQ(run.steps.front().step, 3) << "two were made elsewhere";
    for (size_t i = 0; i < run.steps.size(); ++i)
      EXPECT_NEAR(run.steps[i].loss, expected.at(i).get<double>(), 1e-6) << "stage " << stage << ", step " << i;
    EXPECT_THAT(run.summary.notes, testing::Contains(HasSubstr("masters, moments and the step go on")));
    EXPECT_EQ(*checkpoint_step(last_checkpoint(plan.output_dir)), 7);
  }
}

// The two of stage 3 have a frozen v_proj beside a trained k_proj, which Nought computes as one product.
INSTANTIATE_TEST_SUITE_P(Folders, ForeignResume, testing::Values("zero1", "zero2", "bf16", "universal2", "dcp"));

/// What nought check says of a plan.
std::string refusal(const RunPlan& plan) {
  return message_of<Error>([&] { validate_run(plan, StartMode::resume, kDryRun); });
}

TEST(ForeignResume, what_can_not_go_on_is_refused_with_the_way_out) {
  const TempFolder folder;
  RunPlan plan = plan_from("zero2", folder);
  EXPECT_EQ(refusal(plan), "");
  plan.layout.sharding.optimizer.method = MuonOptions{};
  EXPECT_THAT(refusal(plan), HasSubstr("the optimizer of this run keeps momentum_buffer of"));
  plan = plan_from("zero3", folder);
  EXPECT_THAT(refusal(plan), HasSubstr("v_proj.weight was frozen and is trained now: set training.freeze"));
  plan = plan_from("dcp_plain", folder);
  EXPECT_THAT(refusal(plan), HasSubstr("holds no states of an optimizer to go on from: name the folder as \"model\""));
}

TEST(ForeignResume, a_run_keeps_checkpoints_of_others_in_its_output_folder) {
  const TempFolder folder;
  RunPlan plan = plan_from("zero2", folder);
  fs::create_directories(plan.output_dir);
  const fs::path theirs = fs::path(plan.output_dir) / "checkpoint-2";
  fs::copy(golden("zero2"), theirs, fs::copy_options::recursive);
  plan.resume_from = theirs.string();
  plan.max_steps = 3;
  EXPECT_EQ(test::run_plan(plan, {.mode = StartMode::resume}).steps.front().step, 3);
  plan.resume_from.clear();
  plan.max_steps = 4;
  EXPECT_EQ(test::run_plan(plan, {.mode = StartMode::resume}).steps.front().step, 4) << "from its own";
  remove_debris(plan.output_dir);
  EXPECT_TRUE(fs::exists(theirs / "latest"));
}

}  // namespace
}  // namespace nought::foreign_resume_test
