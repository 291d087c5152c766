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
  if (name.ends_with('3')) plan.layout.freezing.freeze = {"o_proj"};
  return plan;
}

class ForeignResume : public testing::TestWithParam<const char*> {};

TEST_P(ForeignResume, five_more_steps_have_the_losses_of_torch) {
  const Json expected = further().at("losses").at(GetParam());
  const bool on_ranks = std::string("zero2 zero3 tp2 dcp").find(GetParam()) != std::string::npos;
  for (const auto& [ranks, stage] : {std::pair{1, 0}, std::pair{2, 3}}) {
    if (ranks > 1 && !on_ranks) continue;
    const TempFolder folder;
    RunPlan plan = plan_from(GetParam(), folder);
    // DeepSpeed's fp16 optimizer without ZeRO begins with an update of zeros, which counts.
    const int64_t made = GetParam() == std::string("plain16") ? 3 : 2;
    plan.max_steps = made + 5;
    plan.layout.zero_stage = stage;
    plan.layout.sharding.policy = Policy::stage(stage);
    const test::ToldRun run = test::run_plan(plan, {.ranks = ranks, .mode = StartMode::resume});
    ASSERT_EQ(run.steps.size(), 5U);
    EXPECT_EQ(run.steps.front().step, made + 1) << "the others were made elsewhere";
    for (size_t i = 0; i < run.steps.size(); ++i)
      EXPECT_NEAR(run.steps[i].loss, expected.at(i).get<double>(), 1e-6) << "stage " << stage << ", step " << i;
    EXPECT_THAT(run.summary.notes, testing::Contains(HasSubstr("masters, moments and the step go on")));
    EXPECT_EQ(*checkpoint_step(last_checkpoint(plan.output_dir)), plan.max_steps);
  }
}

INSTANTIATE_TEST_SUITE_P(Folders, ForeignResume,
                         testing::Values("zero1", "zero2", "zero3", "bf16", "universal2", "universal3", "tp2", "plain",
                                         "plain16", "dcp"));

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
  plan.layout.sharding.optimizer.method = LambOptions{};
  EXPECT_THAT(refusal(plan), HasSubstr("the optimizer of this run is another one: go on with adamw"));
  plan = plan_from("zero3", folder);
  plan.layout.freezing = {};
  EXPECT_THAT(refusal(plan), HasSubstr("o_proj.weight was frozen and is trained now: set training.freeze"));
  plan = plan_from("dcp_plain", folder);
  EXPECT_THAT(refusal(plan), HasSubstr("holds no states of an optimizer to go on from: name the folder as \"model\""));
}

TEST(ForeignResume, an_optimizer_that_goes_on_otherwise_is_told) {
  for (const char* name : {"zero2", "zero3", "universal3", "plain"}) {
    const TempFolder folder;
    RunPlan plan = plan_from(name, folder);
    const auto notes = [&] { return validate_run(plan, StartMode::resume, kDryRun).notes; };
    EXPECT_THAT(notes(), testing::Not(testing::Contains(HasSubstr("goes on otherwise")))) << name;
    plan.layout.sharding.optimizer.method = AdamOptions{.beta2 = 0.95, .eps = 1e-6, .decoupled_decay = false};
    plan.layout.sharding.optimizer.weight_decay = 0.2, plan.layout.sharding.optimizer.decay_all = true;
    EXPECT_THAT(notes(),
                testing::Contains(HasSubstr(
                    "the optimizer goes on otherwise than it was: adam_beta2 was 0.999 and is 0.95, "
                    "adam_epsilon was 1e-08 and is 1e-06, weight_decay was 0.1 and is 0.2, weight_decay_all was "
                    "false and is true, optim was AdamW and is Adam: set them in \"training\"")))
        << name;
  }
}

TEST(ForeignResume, fsdp2_tells_its_optimizer_too) {
  const TempFolder folder;
  EXPECT_THAT(
      validate_run(plan_from("dcp", folder), StartMode::resume, kDryRun).notes,
      testing::Contains(HasSubstr("than it was: weight_decay was 0.01 and is 0.1, weight_decay_all was true and "
                                  "is false")));
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
