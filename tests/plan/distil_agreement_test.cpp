// What is predicted of runs that learn from a teacher is what their ledger says, to the byte.
#include "support/in_folder.h"
#include "support/size.h"
#include "support/trainer_runs.h"
#include <gtest/gtest.h>

#include "nought/plan/predict.h"
#include "nought/plan/ready_run.h"
#include "nought/train/validate_run.h"

namespace nought::distil_agreement_test {
namespace {

NOUGHT_FILE_SIZE(medium);

class DistilAgreement : public test::InFolder {
 protected:
  DistilAgreement() {
    // Answers of one length, and none of the model's that end: steps have the most tokens that there may be.
    std::string text;
    for (int i = 0; i < 16; ++i)
      text += fmt::format("{{\"prompt\": \"{}\", \"completion\": \"{}\"}}\n", std::string(10, 'a' + i),
                          std::string(21, 'z'));
    plan.data.sources = {{{folder.write("answers.jsonl", text).string()}}};
    plan.data.format = CorpusFormat::completions;
    plan.model_config["eos_token_id"] = Json::array({255});
    plan.layout.seq_length = 64, plan.layout.micro_batch = 4, plan.layout.accumulation = 2;
    plan.layout.wire = Wire::threads;
    RunPlan teacher = test::plan_on_lines(folder, 1);
    teacher.model_config["num_hidden_layers"] = 3;
    teacher.output_dir = (folder / "teacher").string();
    test::run_plan(teacher);
    AlignmentPlan& alignment = plan.alignment;
    alignment.method = AlignmentMethod::gkd, alignment.distillation.emplace();
    alignment.teacher_model = teacher.output_dir;
    alignment.policy_loss.max_completion_length = 22;
  }
  void expect_agreement(int ranks, int stage, double own_share) {
    SCOPED_TRACE(fmt::format("stage {} on {} ranks, lmbda {}", stage, ranks, own_share));
    plan.layout.ranks = ranks, plan.layout.zero_stage = stage;
    plan.alignment.distillation->own_share = own_share;
    const ReadyRun ready = ready_run(plan, StartMode::overwrite, kDryRun);
    const RankMemory predicted = predict(ready.inputs.config, layout_of(ready.plan)).memory;
    const test::ToldRun told = test::run_plan(ready.plan, {.ranks = ranks, .mode = StartMode::overwrite});
    for (size_t c = 0; c < kNumCategories; ++c)
      EXPECT_EQ(predicted.peak[c], told.memory.at(0).peak[c]) << name_of(static_cast<Category>(c));
  }

  RunPlan plan = test::plan_on_lines(folder, 2);
};

TEST_F(DistilAgreement, holds_at_every_stage) {
  expect_agreement(1, 0, 0);
  expect_agreement(1, 0, 1);
  expect_agreement(2, 1, 0);
  expect_agreement(2, 3, 1);
}

}  // namespace
}  // namespace nought::distil_agreement_test
