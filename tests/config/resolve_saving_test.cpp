// When a run saves, where it resumes, which checkpoint is the best, and what it continues on the way.
#include "support/resolved.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::resolve_saving_test {
namespace {

using test::error_of;
using test::plan_of;
using test::reason_of;
using test::value_of;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

std::string with(const std::string& training, const std::string& data = "") {
  return fmt::format(R"({{"data": {{{}}}, "training": {{{}}}}})", data, training);
}

const std::string kValidates = R"("validation_fraction": 0.1)";

TEST(ResolveSaving, a_strategy_says_whether_steps_or_epochs_are_saved_or_none) {
  const RunPlan epochs = plan_of(with(R"("save_strategy": "epoch", "save_steps": 500)"));
  EXPECT_TRUE(epochs.save_epochs);
  EXPECT_EQ(epochs.save_steps, 0);
  EXPECT_THAT(epochs.warnings, IsEmpty());
  EXPECT_THAT(plan_of(with(R"("save_strategy": "no", "save_steps": 7)")).warnings,
              Contains(HasSubstr("training.save_steps = 7 has no effect: RUN.json: training.save_strategy is \"no\"")));
  EXPECT_EQ(plan_of(with(R"("save_strategy": "no", "save_steps": 7)")).save_steps, 0);
  EXPECT_EQ(plan_of(with(R"("save_strategy": "steps", "save_steps": 7)")).save_steps, 7);
  EXPECT_THAT(error_of(with(R"("save_strategy": "best")")), HasSubstr("one of no, steps, epoch"));
}

TEST(ResolveSaving, checkpoints_are_written_beside_the_training_as_far_as_steps_follow_them) {
  const RunPlan open = plan_of(with(R"("save_steps": 7)"));
  EXPECT_TRUE(open.async_save_fits_memory);
  EXPECT_FALSE(open.layout.async_save) << "until it is known that copies fit";
  const RunPlan on = plan_of(with(R"("async_save": true)")), off = plan_of(with(R"("async_save": false)"));
  EXPECT_TRUE(on.layout.async_save);
  EXPECT_EQ(value_of(on, "async_save"), "true");
  EXPECT_FALSE(off.layout.async_save);
  for (const RunPlan* given : {&on, &off}) EXPECT_FALSE(given->async_save_fits_memory);
  EXPECT_TRUE(plan_of(with(R"("async_save": "auto", "save_strategy": "epoch")")).async_save_fits_memory);
  const RunPlan last = plan_of(with(R"("async_save": true, "max_steps": 20, "save_steps": 20)"));
  EXPECT_FALSE(last.layout.async_save || last.async_save_fits_memory);
  EXPECT_THAT(reason_of(last, "async_save"), HasSubstr("no step follows the only checkpoint"));
  EXPECT_THAT(error_of(with(R"("async_save": "yes")")), HasSubstr("training.async_save: expected "));
  EXPECT_THAT(error_of(with(R"("async_save": 1)")), HasSubstr("training.async_save: expected "));
}

TEST(ResolveSaving, tensorboard_is_reported_to_where_the_arguments_say) {
  const auto dir = [](const std::string& training) {
    return plan_of(with(R"("output_dir": "out", )" + training)).report_dir;
  };
  EXPECT_EQ(dir(R"("report_to": "tensorboard")"), "out/runs");
  EXPECT_EQ(dir(R"("report_to": ["wandb", "tensorboard"], "logging_dir": "logs", "run_name": "a/b")"), "logs/a_b");
  EXPECT_EQ(dir(R"("report_to": "all", "run_name": "out")"), "out/runs") << "transformers 4 takes it for a name";
  for (const char* none : {R"("report_to": "none")", R"("report_to": [])", R"("report_to": null)", R"("seed": 1)"}) {
    EXPECT_EQ(dir(none), "");
    EXPECT_THAT(plan_of(with(none)).warnings, IsEmpty()) << none;
  }
  EXPECT_THAT(plan_of(with(R"("report_to": "wandb")")).warnings, Contains(HasSubstr("wandb is not written to")));
  EXPECT_THAT(plan_of(with(R"("run_name": "x")")).warnings, Contains(HasSubstr("training.run_name has no effect")));
  EXPECT_THAT(error_of(with(R"("report_to": 3)")), HasSubstr("found the number 3"));
}

TEST(ResolveSaving, resuming_names_the_last_checkpoint_a_step_or_a_path) {
  const auto resumes = [](const std::string& value) {
    return make_run_config(parse_json(with("\"resume_from_checkpoint\": " + value), "RUN.json"), "RUN.json")
        .training.resumes();
  };
  EXPECT_FALSE(resumes("null"));
  EXPECT_FALSE(resumes("false"));
  for (const char* value : {"true", "40", "\"out/checkpoint-40\""}) EXPECT_TRUE(resumes(value)) << value;
  const auto from = [](const std::string& value) {
    return plan_of(with("\"resume_from_checkpoint\": " + value)).resume_from;
  };
  EXPECT_EQ(from("false"), "");
  EXPECT_EQ(from("true"), "");
  EXPECT_EQ(from("40"), "40");
  EXPECT_EQ(from("\"out/checkpoint-40\""), "out/checkpoint-40");
  EXPECT_EQ(plan_of(with(""), 1, {"training.resume_from_checkpoint=a/b"}).resume_from, "a/b");
  for (const char* wrong : {"[]", "\"\"", "-1", "1.5"})
    EXPECT_THAT(error_of(with(std::string("\"resume_from_checkpoint\": ") + wrong)),
                HasSubstr("training.resume_from_checkpoint: expected true, false, a step or the path of a checkpoint"));
}

TEST(ResolveSaving, the_best_model_is_that_of_a_metric_which_needs_data) {
  EXPECT_FALSE(plan_of(with("")).best.has_value());
  const RunPlan plan = plan_of(with(R"("load_best_model_at_end": true)", kValidates));
  ASSERT_TRUE(plan.best.has_value());
  EXPECT_EQ(plan.best->metric, EvalMetric::loss);
  EXPECT_FALSE(plan.best->greater_is_better);
  EXPECT_THAT(plan.warnings, IsEmpty());
  for (const char* name : {"bits_per_byte", "eval_bits_per_byte"})
    EXPECT_EQ(
        plan_of(with(fmt::format(R"("load_best_model_at_end": true, "metric_for_best_model": "{}")", name), kValidates))
            .best->metric,
        EvalMetric::bits_per_byte);
  const char* reward = R"("load_best_model_at_end": true, "metric_for_best_model": "eval_reward")";
  EXPECT_THAT(error_of(with(reward, kValidates)), HasSubstr("alignment.method = sft has no rewards of answers"));
  const RunPlan of_rewards = plan_of(with(reward, kValidates), 1, {"alignment.method=rloo"});
  EXPECT_EQ(of_rewards.best->metric, EvalMetric::reward);
  EXPECT_TRUE(of_rewards.best->greater_is_better);
  EXPECT_THAT(error_of(with(R"("load_best_model_at_end": true)")),
              HasSubstr("training.load_best_model_at_end needs data to validate with"));
  EXPECT_THAT(error_of(with(R"("metric_for_best_model": "eval_los")")), HasSubstr("did you mean \"eval_loss\""));
}

TEST(ResolveSaving, what_has_no_effect_or_the_wrong_one_is_said) {
  EXPECT_THAT(plan_of(with(R"("metric_for_best_model": "loss", "greater_is_better": false)")).warnings,
              testing::ElementsAre(HasSubstr("metric_for_best_model has no effect without"),
                                   HasSubstr("greater_is_better has no effect without")));
  const RunPlan worst = plan_of(with(R"("load_best_model_at_end": true, "greater_is_better": true)", kValidates));
  EXPECT_TRUE(worst.best->greater_is_better);
  EXPECT_THAT(worst.warnings, Contains(HasSubstr("greater_is_better = true keeps the worst model")));
}

TEST(ResolveSaving, a_sample_has_a_prompt_and_whole_numbers) {
  EXPECT_FALSE(plan_of(with(R"("sample_steps": 5)")).sample.has_value());
  const RunPlan plan = plan_of(with(R"("sample_prompt": "Once\nupon", "sample_steps": 5)"));
  ASSERT_TRUE(plan.sample.has_value());
  EXPECT_EQ(plan.sample->prompt, "Once\nupon");
  EXPECT_EQ(plan.sample->steps, 5);
  EXPECT_EQ(plan.sample->max_new_tokens, 64);
  EXPECT_EQ(value_of(plan, "sample_prompt"), "\"Once\\nupon\"") << "on one line";
  EXPECT_THAT(reason_of(plan, "sample_max_new_tokens"), HasSubstr("default"));
  EXPECT_THAT(error_of(with(R"("sample_prompt": "")")), HasSubstr("expected a text to continue"));
  EXPECT_THAT(error_of(with(R"("sample_prompt": "x", "sample_steps": 0)")), HasSubstr("expected at least 1"));
  EXPECT_THAT(error_of(with(R"("sample_prompt": "x", "sample_max_new_tokens": 9223372036854775807)")),
              HasSubstr("expected at most 16777216"));
}

}  // namespace
}  // namespace nought::resolve_saving_test
