// Runs that learn from a teacher, on every layout.
#include "nought/train/distil_run.h"

#include "support/in_folder.h"
#include "support/message_of.h"
#include "support/size.h"
#include "support/sweep.h"
#include "support/trainer_runs.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/train/validate_run.h"

namespace nought::distil_run_test {
namespace {

NOUGHT_FILE_SIZE(medium);

using test::message_of;
using test::TempFolder;
using test::ToldRun;
using testing::HasSubstr;

class DistilRuns : public test::InFolder {
 protected:
  DistilRuns() {
    std::string text;
    for (int i = 0; i < 16; ++i)
      text += fmt::format("{{\"prompt\": \"{}\", \"completion\": \"{}\"}}\n",
                          std::string(1 + static_cast<size_t>(i % 3), static_cast<char>('a' + i % 5)), i);
    plan.data.sources = {{{folder.write("answers.jsonl", text).string()}}};
    plan.data.format = CorpusFormat::completions;
    plan.layout.seq_length = 16, plan.layout.micro_batch = 2, plan.layout.accumulation = 4;
    // A quarter of all tokens ends an answer: ranks that write different ones make different numbers of passes.
    Json ends = Json::array();
    for (int id = 0; id < 64; ++id) ends.push_back(id);
    plan.model_config["eos_token_id"] = ends;
    RunPlan teacher = test::plan_on_lines(folder, 1);
    teacher.model_config["initializer_range"] = 0.3;
    teacher.seed = 7, teacher.output_dir = (folder / "teacher").string();
    test::run_plan(teacher);
    AlignmentPlan& alignment = plan.alignment;
    alignment.method = AlignmentMethod::gkd, alignment.distillation.emplace();
    alignment.teacher_model = teacher.output_dir;
    alignment.policy_loss.temperature = 0.9, alignment.policy_loss.max_completion_length = 6;
  }
  ToldRun run_on(int ranks, const std::function<void(Layout&)>& change) {
    TempFolder own;
    RunPlan other = plan;
    other.output_dir = (own / "out").string();
    change(other.layout);
    return test::run_plan(other, {.ranks = ranks});
  }
  static std::vector<double> numbers(const ToldRun& told, const std::string& name) {
    std::vector<double> values;
    for (const StepReport& step : told.steps)
      for (const auto& [key, value] : step.of_answers)
        if (key == name) values.push_back(value);
    return values;
  }
  void expect_same(const ToldRun& one, int ranks, const std::function<void(Layout&)>& change) {
    const ToldRun other = run_on(ranks, change);
    EXPECT_EQ(numbers(other, "completions/mean_length"), numbers(one, "completions/mean_length"));
    for (size_t i = 0; i < one.losses().size(); ++i) EXPECT_NEAR(other.losses()[i], one.losses()[i], 1e-5);
  }

  RunPlan plan = test::plan_on_lines(folder, 6);
};

TEST_F(DistilRuns, learn_the_same_on_every_layout) {
  plan.save_steps = 3;
  const ToldRun told = test::run_plan(plan);
  EXPECT_THAT(numbers(told, "on_policy"), testing::AllOf(testing::Contains(0), testing::Contains(1)));
  test::expect_resumes(plan, told, 3, 1);
  for (const int stage : {0, 3})
    expect_same(told, 2, [&](Layout& layout) { layout.accumulation = 2, layout.zero_stage = stage; });
  expect_same(told, 2, [](Layout& layout) { layout.pipeline.ranks = 2; });
  if (!test::runs_everything()) return;
  for (const int stage : {1, 2})
    expect_same(told, 2, [&](Layout& layout) { layout.accumulation = 2, layout.zero_stage = stage; });
}

TEST_F(DistilRuns, come_nearer_to_their_teacher) {
  plan.alignment.distillation->own_share = 0;
  const RunPlan longer = test::plan_on_lines(folder, 40, 2e-2);
  plan.max_steps = longer.max_steps, plan.schedule = longer.schedule;
  plan.data.validation_fraction = 0.25, plan.layout.evaluation_rows = 3;
  plan.eval_strategy = EvalStrategy::steps, plan.eval_steps = 20;
  const ToldRun told = test::run_plan(plan);
  EXPECT_LT(told.losses().back(), 0.5 * told.losses().front());
  ASSERT_EQ(told.validations.size(), 2U);
  EXPECT_GT(told.validations[0].second.targets, 4);
  EXPECT_LT(told.validations[1].second.loss, told.losses().front());
  EXPECT_EQ(numbers(told, "on_policy").back(), 0);
}

TEST_F(DistilRuns, of_a_teacher_that_is_the_model_have_nothing_to_learn) {
  plan.model_config = {}, plan.model_dir = plan.alignment.teacher_model;
  plan.max_steps = 1;
  EXPECT_NEAR(test::run_plan(plan).losses().at(0), 0, 1e-6);
}

TEST_F(DistilRuns, need_a_teacher_with_their_vocabulary) {
  const auto why = [](const RunPlan& those) {
    return message_of<ConfigError>([&] { validate_run(those, StartMode::overwrite); });
  };
  RunPlan other = plan;
  other.model_config["vocab_size"] = 320;
  EXPECT_THAT(why(other), HasSubstr("the model that is trained 320: they must read the same tokens"));
  other = plan;
  other.alignment.teacher_model = "";
  EXPECT_THAT(why(other), HasSubstr("nobody teaches: set alignment.teacher_model"));
}

}  // namespace
}  // namespace nought::distil_run_test
