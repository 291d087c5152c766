// What is predicted of runs that write and judge their own answers is what their ledger says, to the byte.
#include "support/in_folder.h"
#include "support/size.h"
#include "support/trainer_runs.h"
#include <gtest/gtest.h>

#include "nought/plan/predict.h"
#include "nought/plan/ready_run.h"
#include "nought/train/validate_run.h"

namespace nought::policy_agreement_test {
namespace {

using test::ToldRun;

NOUGHT_FILE_SIZE(medium);

class PolicyAgreement : public test::InFolder {
 protected:
  PolicyAgreement() {
    // Prompts of one length, and answers that never end: steps have the most tokens that there may be.
    std::string text;
    for (int i = 0; i < 16; ++i) text += fmt::format("{{\"prompt\": \"{}\"}}\n", std::string(10, 'a' + i));
    plan.data.sources = {{{folder.write("prompts.jsonl", text).string()}}};
    plan.data.format = CorpusFormat::prompts;
    plan.model_config["eos_token_id"] = Json::array({255});
    plan.layout.seq_length = 64, plan.layout.micro_batch = 4, plan.layout.accumulation = 2;
    plan.layout.wire = Wire::threads;
    AlignmentPlan& alignment = plan.alignment;
    alignment.method = AlignmentMethod::grpo, alignment.generations = 4;
    alignment.policy_loss.max_completion_length = 22;
    RewardConfig letters;
    letters.type = RewardType::regex;
    letters.pattern.value = "[a-z]", letters.pattern.given = true;
    alignment.rewards = {letters}, alignment.reward_weights = {1};
  }
  /// The peaks that are predicted of a rank. All are those that a run of as many ranks has.
  RankMemory expect_agreement(int ranks) {
    plan.layout.ranks = ranks;
    const ReadyRun ready = ready_run(plan, StartMode::overwrite, kDryRun);
    const RankMemory predicted = predict(ready.inputs.config, layout_of(ready.plan)).memory;
    const ToldRun told = test::run_plan(ready.plan, {.ranks = ranks, .mode = StartMode::overwrite});
    for (size_t c = 0; c < kNumCategories; ++c)
      EXPECT_EQ(predicted.peak[c], told.memory.at(0).peak[c]) << name_of(static_cast<Category>(c));
    return predicted;
  }
  static int64_t parameters(const RankMemory& memory) { return memory.peak[static_cast<size_t>(Category::parameters)]; }

  RunPlan plan = test::plan_on_lines(folder, 2);
};

TEST_F(PolicyAgreement, holds_with_and_without_a_reference) {
  const int64_t alone = parameters(expect_agreement(1));
  plan.layout.zero_stage = 3;
  expect_agreement(2);
  plan.layout.zero_stage = 0;
  plan.alignment.policy_loss.beta = 0.1;
  EXPECT_EQ(parameters(expect_agreement(1)), 2 * alone);
  plan.alignment.iterations = 2;
  for (const int stage : {1, 3}) {
    plan.layout.zero_stage = stage;
    expect_agreement(2);
  }
}

TEST_F(PolicyAgreement, the_reference_of_an_adapter_takes_no_memory) {
  plan.max_steps = 1;
  test::run_plan(plan);
  plan.model_config = {}, plan.model_dir = plan.output_dir, plan.output_dir = (folder / "adapted").string();
  plan.max_steps = 2;
  plan.adapter = AdapterConfig{.r = 3, .alpha = 6, .targets = {.pattern = "all-linear"}};
  plan.adapter_place = "RUN.json: adapter";
  const int64_t alone = parameters(expect_agreement(1));
  plan.alignment.policy_loss.beta = 0.1;
  EXPECT_EQ(parameters(expect_agreement(1)), alone);
  plan.adapter->start = AdapterStart::olora;  // the model without it is not the one that it began with
  EXPECT_GT(parameters(expect_agreement(1)), alone);
}

}  // namespace
}  // namespace nought::policy_agreement_test
