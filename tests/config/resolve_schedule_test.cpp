#include "support/resolved.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::resolve_schedule_test {
namespace {

using test::error_of;
using test::plan_of;
using test::value_of;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Resolve, a_deepspeed_schedule_takes_its_parameters_and_their_defaults) {
  const RunPlan plan = plan_of(R"({"training": {"max_steps": 5000, "learning_rate": 0.01}, "deepspeed": {"scheduler":
    {"type": "WarmupCosineLR", "params": {"warmup_min_ratio": 0.1, "warmup_type": "linear"}}}})");
  EXPECT_EQ(plan.schedule.type, ScheduleType::warmup_cosine_lr);
  EXPECT_EQ(plan.schedule.warmup_min_ratio, 0.1);
  EXPECT_EQ(plan.schedule.cos_min_ratio, 1e-4);
  EXPECT_EQ(plan.schedule.warmup_shape, WarmupShape::linear);
  EXPECT_EQ(plan.schedule.warmup_steps, 1000);
  EXPECT_EQ(plan.schedule.total_steps, 5000);
  EXPECT_EQ(plan.schedule.peak_lr, 0.01);
}

TEST(Resolve, warmup_max_lr_follows_the_optimizer_unless_it_is_given) {
  const char* optimizer = R"("optimizer": {"type": "AdamW", "params": {"lr": 0.003}})";
  const auto peak = [&](const char* params) {
    return plan_of(fmt::format(R"({{"deepspeed": {{{}, "scheduler": {{"type": "WarmupLR", "params": {}}}}}}})",
                               optimizer, params))
        .schedule.peak_lr;
  };
  EXPECT_EQ(peak("{}"), 0.003);
  EXPECT_EQ(peak(R"({"warmup_max_lr": "auto"})"), 0.003);
  EXPECT_EQ(peak(R"({"warmup_max_lr": 0.007})"), 0.007);
}

TEST(Resolve, a_warmup_that_is_auto_needs_one_to_take) {
  const auto with = [](const char* training, const char* type) {
    return fmt::format(
        R"({{"training": {}, "deepspeed": {{"scheduler": {{"type": "{}", "params": {{"warmup_num_steps": "auto"}}}}}}}})",
        training, type);
  };
  EXPECT_EQ(error_of(with(R"({"max_steps": 10})", "WarmupLR")),
            "RUN.json: deepspeed.scheduler.params.warmup_num_steps = \"auto\": the run has no warmup to take; give "
            "training.warmup_steps or training.warmup_ratio, or write a number of updates");
  EXPECT_THAT(error_of(with(R"({"num_train_epochs": 1})", "WarmupDecayLR")), HasSubstr("has no warmup to take"));
  EXPECT_EQ(plan_of(with(R"({"max_steps": 10, "warmup_steps": 3})", "WarmupLR")).schedule.warmup_steps, 3);
  EXPECT_EQ(plan_of(with(R"({"num_train_epochs": 1, "warmup_ratio": 0.1})", "WarmupLR")).warmup_ratio, 0.1);
}

TEST(Resolve, a_parameter_of_another_schedule_is_an_error) {
  EXPECT_THAT(error_of(R"({"deepspeed": {"scheduler": {"type": "WarmupLR", "params": {"cos_min_ratio": 0.1}}}})"),
              HasSubstr("WarmupLR has no parameter cos_min_ratio"));
  EXPECT_THAT(error_of(R"({"deepspeed": {"scheduler": {"type": "WarmupCosineLR", "params": {"warmup_max_lr": 1}}}})"),
              HasSubstr("WarmupCosineLR has no parameter warmup_max_lr"));
}

TEST(Resolve, doubtful_warmups_are_warned_about) {
  EXPECT_THAT(plan_of(R"({"training": {"max_steps": 10, "warmup_steps": 20}})").warnings,
              ElementsAre(HasSubstr("the warmup of 20 updates is longer than the run of 10")));
  EXPECT_THAT(plan_of(R"({"training": {"max_steps": 10, "warmup_steps": 2, "warmup_ratio": 0.5}})").warnings,
              ElementsAre(HasSubstr("training.warmup_ratio = 0.5 has no effect")));
  EXPECT_THAT(plan_of(R"({"training": {"lr_scheduler_type": "constant", "warmup_steps": 2}})").warnings,
              ElementsAre(HasSubstr("training.warmup_steps has no effect: the schedule is constant")));
}

TEST(Resolve, schedules_that_end_above_zero_take_transformers_arguments) {
  const auto with = [](const std::string& type, const std::string& arguments) {
    return fmt::format(R"({{"training": {{"max_steps": 20, "warmup_steps": 4, "learning_rate": 1e-3,
                           "lr_scheduler_type": "{}", "lr_scheduler_kwargs": {{{}}}}}}})",
                       type, arguments);
  };
  EXPECT_DOUBLE_EQ(plan_of(with("cosine_with_min_lr", R"("min_lr": 1e-4)")).schedule.min_ratio, 0.1);
  const Schedule early =
      plan_of(with("cosine_warmup_with_min_lr", R"("min_lr_rate": 0.2, "warmup_lr_rate": 0, "num_cycles": 1.5)"))
          .schedule;
  EXPECT_EQ(early.min_ratio, 0.2);
  EXPECT_EQ(early.warmup_ratio, 0);
  EXPECT_EQ(early.waves, 1.5);
  const RunPlan wsd =
      plan_of(with("warmup_stable_decay", R"("num_decay_steps": 6, "decay_type": "1-sqrt", "min_lr_ratio": 0.1)"));
  EXPECT_EQ(stable_steps(wsd.schedule), 10);
  EXPECT_EQ(wsd.schedule.stable.decay, Bend::one_minus_sqrt);
  EXPECT_EQ(value_of(wsd, "schedule.decay_type"), "1-sqrt");

  EXPECT_THAT(error_of(with("cosine_with_min_lr", "")), HasSubstr("give training.lr_scheduler_kwargs.min_lr or"));
  EXPECT_THAT(error_of(with("cosine_with_min_lr", R"("min_lr": 1e-4, "min_lr_rate": 0.1)")), HasSubstr("contradicts"));
  EXPECT_THAT(error_of(with("cosine_with_min_lr", R"("min_lr": 2e-3)")), HasSubstr("min_lr: expected a finite number"));
  EXPECT_THAT(error_of(with("cosine_with_min_lr", R"("min_lr_rate": 0.1, "warmup_lr_rate": 0.1)")),
              HasSubstr("has no such parameter, only cosine_warmup_with_min_lr"));
  EXPECT_THAT(error_of(with("warmup_stable_decay", "")),
              HasSubstr("give training.lr_scheduler_kwargs.num_decay_steps"));
  EXPECT_THAT(
      error_of(with("warmup_stable_decay", R"("num_decay_steps": 17)")),
      HasSubstr("num_decay_steps = 17: with a warmup of 4 updates the decay does not end within the run of 20"));
  EXPECT_THAT(error_of(with("cosine_with_restarts", R"("num_cycles": 1.5)")),
              HasSubstr("expected an integer, got 1.5"));
  EXPECT_THAT(error_of(with("reduce_lr_on_plateau", "")),
              HasSubstr("lr_scheduler_type = reduce_lr_on_plateau is not available"));
  EXPECT_THAT(error_of(with("greedy", "")), HasSubstr("take cosine_with_min_lr or warmup_stable_decay"));
}

TEST(Resolve, the_decay_of_a_run_by_epochs_has_to_fit_once_the_data_is_known) {
  const RunPlan open = plan_of(R"({"training": {"num_train_epochs": 1, "lr_scheduler_type": "warmup_stable_decay",
                                   "lr_scheduler_kwargs": {"num_decay_steps": 6, "num_stable_steps": 3}}})");
  EXPECT_EQ(stable_steps(with_steps_per_epoch(open, 9).schedule), 3);
  EXPECT_THROW(with_steps_per_epoch(open, 8), ConfigError);
}

TEST(Resolve, a_run_by_epochs_gets_its_length_once_the_data_is_known) {
  const RunPlan open = plan_of(R"({"training": {"num_train_epochs": 2.5, "warmup_ratio": 0.1}})");
  EXPECT_EQ(open.max_steps, 0);
  EXPECT_EQ(value_of(open, "max_steps"), "?");
  const RunPlan plan = with_steps_per_epoch(open, 15);
  EXPECT_EQ(plan.max_steps, 38);
  EXPECT_EQ(plan.schedule.total_steps, 38);
  EXPECT_EQ(plan.schedule.warmup_steps, 4);
  EXPECT_EQ(value_of(plan, "max_steps"), "38");
  EXPECT_EQ(value_of(plan, "schedule.warmup_steps"), "4");
  EXPECT_EQ(with_steps_per_epoch(plan, 7).max_steps, 38);
  EXPECT_THROW(with_steps_per_epoch(open, 0), ConfigError);
}

TEST(Resolve, deepspeed_range_test_and_one_cycle_have_their_own_parameters) {
  const auto with = [](const std::string& type, const std::string& params) {
    return fmt::format(R"({{"deepspeed": {{"scheduler": {{"type": "{}", "params": {}}}}}}})", type, params);
  };
  const RunPlan range =
      plan_of(with("LRRangeTest", R"({"lr_range_test_step_size": 5, "lr_range_test_staircase": true})"));
  EXPECT_EQ(range.schedule.type, ScheduleType::lr_range_test);
  EXPECT_EQ(range.schedule.range.step_size, 5);
  EXPECT_TRUE(range.schedule.range.staircase);
  const RunPlan cycle = plan_of(with("OneCycle", R"({"cycle_min_lr": 0.001, "cycle_max_lr": 0.01})"));
  EXPECT_EQ(cycle.schedule.peak_lr, 0.01);
  EXPECT_EQ(cycle.schedule.cycle.second_steps, 2000);
  EXPECT_TRUE(cycle.layout.sharding.optimizer.momentum_cycle.has_value());
  EXPECT_THAT(error_of(with("OneCycle", "{}")), HasSubstr("needs cycle_min_lr"));
  EXPECT_THAT(error_of(with("WarmupLR", R"({"cycle_min_lr": 1})")), HasSubstr("has no parameter cycle_min_lr"));
}

}  // namespace
}  // namespace nought::resolve_schedule_test
