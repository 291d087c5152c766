// A rank that stays slower than the others is named with what it is slow in; the ranks' times travel with the loss.
#include "nought/diagnose/stragglers.h"

#include <thread>

#include "support/trainer_runs.h"
#include "support/watched_context.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/train/trainer.h"

namespace nought::stragglers_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Milliseconds of one rank's step.
struct Times {
  double forward = 20, backward = 40, communication = 5, data = 1;
};

std::vector<double> shared_by(const std::vector<Times>& ranks) {
  std::vector<double> shared;
  for (const Times& each : ranks)
    for (const double value : {10e3, each.forward, each.backward, each.communication, each.data})
      shared.push_back(value / 1e3);
  return shared;
}

TEST(Stragglers, what_a_rank_shares_is_its_own_work_as_a_mean_over_the_interval) {
  StragglerLog log(2, {});
  EXPECT_THAT(log.take(2), IsEmpty()) << "no step was made before";
  log.add({.forward = 100, .backward = 100, .communication = 100, .data = 100});  // the first step counts for nothing
  log.add({.forward = 4, .backward = 6, .communication = 3, .data = 1, .forward_waits = 1, .backward_waits = 2});
  EXPECT_THAT(log.take(3), IsEmpty()) << "no multiple of the interval";
  log.add({.forward = 6, .backward = 8, .communication = 5, .data = 3, .forward_waits = 1, .backward_waits = 0});
  EXPECT_THAT(log.take(4), ElementsAre(2, 4, 6, 4, 2));
  EXPECT_THAT(log.take(6), IsEmpty()) << "it was told";
}

TEST(Stragglers, each_kind_of_work_has_its_least_median_and_most_and_the_rank_of_that) {
  StragglerLog log(10, {});
  const RankComparison of_three = log.compare(
      20,
      shared_by({{.forward = 20, .data = 9}, {.forward = 23, .backward = 41}, {.forward = 21, .communication = 4}}));
  EXPECT_EQ(of_three.steps, 10);
  EXPECT_NEAR(of_three.forward.min, 0.020, 1e-12);
  EXPECT_NEAR(of_three.forward.median, 0.021, 1e-12);
  EXPECT_NEAR(of_three.forward.max, 0.023, 1e-12);
  EXPECT_EQ(of_three.forward.slowest, 1);
  EXPECT_EQ(of_three.backward.slowest, 1);
  EXPECT_EQ(of_three.data.slowest, 0);
  EXPECT_NEAR(of_three.communication.min, 0.004, 1e-12);
  const RankComparison of_two = log.compare(30, shared_by({{.forward = 20}, {.forward = 22}}));
  EXPECT_NEAR(of_two.forward.median, 0.021, 1e-12);
  std::vector<std::string> names;
  of_two.for_each([&](const char* name, const TimeSpread&) { names.emplace_back(name); });
  EXPECT_THAT(names, ElementsAre("forward", "backward", "communication", "data"));
}

TEST(Stragglers, a_rank_is_named_after_three_slow_intervals_and_then_ever_more_seldom) {
  StragglerLog log(10, {"node1", "node2", "node3"});
  const std::vector<double> slow = shared_by({{}, {.backward = 80}, {.data = 2}});
  std::vector<int64_t> named;
  std::string first;
  for (int64_t step = 20; step <= 200; step += 10) {
    const std::string warning = log.compare(step, slow).warning;
    if (warning.empty()) continue;
    named.push_back(step);
    if (first.empty()) first = warning;
  }
  EXPECT_THAT(named, ElementsAre(40, 70, 130)) << "after 3, 6 and 12 intervals";
  EXPECT_EQ(
      first,
      "rank 1 on node2 has been slower than the others since step 10: its own work takes 101 ms a step, 1.64 times "
      "their median of 61.5 ms; most of that is backward, 80 ms where theirs is 40 ms");
}

TEST(Stragglers, neither_a_slow_moment_nor_a_small_difference_nor_waiting_is_named) {
  StragglerLog log(10, {});
  const std::vector<double> slow = shared_by({{}, {.forward = 90}}), other = shared_by({{.forward = 90}, {}});
  const std::vector<double> close = shared_by({{}, {.forward = 25}}), waits = shared_by({{}, {.communication = 500}});
  int64_t step = 0;
  for (const auto& shared :
       {slow, slow, close, slow, slow, other, other, slow, slow, waits, waits, waits, close, close})
    EXPECT_EQ(log.compare(step += 10, shared).warning, "") << step;
  EXPECT_NE(log.compare(10, slow).warning + log.compare(20, slow).warning + log.compare(30, slow).warning, "");
}

TEST(Stragglers, one_rank_is_compared_with_nobody) {
  StragglerLog log(1, {});
  for (int64_t step = 1; step < 9; ++step) EXPECT_EQ(log.compare(step, shared_by({{}})).warning, "");
}

constexpr auto kPause = std::chrono::milliseconds(25);

/// The CPU, but each embedding, of which a forward pass has one, takes longer than all else in a tiny model.
Context slow_context() {
  return test::watched(Context::cpu(), [](std::string_view operation, std::string_view, const Tensor&) {
    if (operation == "Embedding") std::this_thread::sleep_for(kPause);
  });
}

test::ToldRun told_by(const RunPlan& plan, bool slow) {
  return test::run_plan(plan, {.ranks = 2,
                               .mode = StartMode::overwrite,
                               .contexts = {Context::cpu(), slow ? slow_context() : Context::cpu()},
                               .recorded = true});
}

TEST(Stragglers, a_rank_made_slow_on_purpose_is_named_with_its_work_and_the_losses_stay) {
  const test::TempFolder folder;
  RunPlan plan = test::plan_on_lines(folder, 8, 1e-3);
  plan.layout.micro_batch = 1;
  plan.logging_steps = 2;
  plan.layout.zero_stage = 2;
  const test::ToldRun off = told_by(plan, false);
  for (const StepReport& report : off.steps) EXPECT_FALSE(report.ranks) << report.step;
  plan.log_straggler = true;
  const test::ToldRun on = told_by(plan, true);
  std::vector<int64_t> at;
  std::vector<std::string> warnings;
  RankComparison last;
  for (const StepReport& report : on.steps) {
    if (!report.ranks) continue;
    at.push_back(report.step), last = *report.ranks;
    if (!last.warning.empty()) warnings.push_back(last.warning);
  }
  EXPECT_THAT(at, ElementsAre(4, 6, 8)) << "the first step of a process counts for nothing";
  EXPECT_EQ(last.steps, 2);
  EXPECT_GE(last.forward.max, std::chrono::duration<double>(kPause).count());
  EXPECT_EQ(last.forward.slowest, 1);
  EXPECT_THAT(warnings, ElementsAre(AllOf(HasSubstr("rank 1 on "), HasSubstr("most of that is forward"))));
  EXPECT_EQ(on.losses(), off.losses());
}

}  // namespace
}  // namespace nought::stragglers_test
