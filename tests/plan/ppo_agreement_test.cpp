// What is predicted of runs that train a policy and a value model is what their ledger says, to the byte.
#include "support/in_folder.h"
#include "support/size.h"
#include "support/trainer_runs.h"
#include <gtest/gtest.h>

#include "nought/plan/predict.h"
#include "nought/plan/ready_run.h"
#include "nought/train/validate_run.h"

namespace nought::ppo_agreement_test {
namespace {

NOUGHT_FILE_SIZE(medium);

class PpoAgreement : public test::InFolder {
 protected:
  PpoAgreement() {
    // Prompts of one length, and answers that never end: steps have the most tokens that there may be.
    std::string text;
    for (int i = 0; i < 16; ++i) text += fmt::format("{{\"prompt\": \"{}\"}}\n", std::string(10, 'a' + i));
    plan.data.sources = {{{folder.write("prompts.jsonl", text).string()}}};
    plan.data.format = CorpusFormat::prompts;
    plan.model_config["eos_token_id"] = Json::array({255});
    plan.layout.seq_length = 64, plan.layout.micro_batch = 4, plan.layout.accumulation = 2;
    plan.layout.wire = Wire::threads;
    AlignmentPlan& alignment = plan.alignment;
    alignment.method = AlignmentMethod::ppo, alignment.ppo.emplace();
    alignment.generations = alignment.generations_to_validate = 1, alignment.iterations = 2;
    alignment.policy_loss.max_completion_length = 22;
    plan.seed = 7;  // by which no answer draws a token that ends it
    RewardConfig letters;
    letters.type = RewardType::regex;
    letters.pattern.value = "[a-z]", letters.pattern.given = true;
    alignment.rewards = {letters}, alignment.reward_weights = {1};
  }
  RankMemory expect_agreement(int ranks, int stage) {
    SCOPED_TRACE(fmt::format("stage {} on {} ranks", stage, ranks));
    plan.layout.ranks = ranks, plan.layout.zero_stage = stage;
    const ReadyRun ready = ready_run(plan, StartMode::overwrite, kDryRun);
    const RankMemory predicted = predict(ready.inputs.config, layout_of(ready.plan)).memory;
    const test::ToldRun told = test::run_plan(ready.plan, {.ranks = ranks, .mode = StartMode::overwrite});
    for (size_t c = 0; c < kNumCategories; ++c)
      EXPECT_EQ(predicted.peak[c], told.memory.at(0).peak[c]) << name_of(static_cast<Category>(c));
    return predicted;
  }

  RunPlan plan = test::plan_on_lines(folder, 2);
};

TEST_F(PpoAgreement, holds_at_every_stage_of_both_models) {
  expect_agreement(1, 0);
  expect_agreement(2, 1);
  expect_agreement(2, 3);
  plan.alignment.ppo->options.kl_coef = 0;  // no reference
  expect_agreement(1, 0);
}

}  // namespace
}  // namespace nought::ppo_agreement_test
