// The numbers of a report are the same as text, as JSON and as a chart.
#include "nought/plan/table.h"

#include "support/plan_report.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/text.h"

namespace nought {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Table, shows_all_stages_side_by_side_with_their_peaks) {
  const PlanReport plan = test::small_report();
  const std::string text = to_text(plan);
  for (const Prediction& each : plan.predictions) {
    EXPECT_THAT(text, HasSubstr(fmt::format("stage {}", each.layout.zero_stage)));
    EXPECT_THAT(text, HasSubstr(format_bytes(each.memory.peak_total)));
  }
  for (const char* part : {"65536 tokens per step", "PaLM: 6 Psi + 12 L h s", "causal: 6 Psi + 6 L h s", "gpt2"})
    EXPECT_THAT(text, HasSubstr(part));
  for (const Prediction& each : plan.recompute)
    EXPECT_THAT(text, HasSubstr(format_bytes(each.memory.peak[static_cast<size_t>(Category::activations)])));
}

TEST(Table, work_over_the_peak_is_the_least_time_of_a_step) {
  PlanReport plan = test::small_report();
  EXPECT_THAT(to_text(plan), Not(HasSubstr("at the peak")));
  plan.peak_flops = plan.predictions[1].executed_flops / 1.25, plan.peak_name = "fp32 FMA on AVX2";
  EXPECT_THAT(to_text(plan), HasSubstr(" 1.25 s"));
  EXPECT_THAT(to_text(plan), HasSubstr("this machine's fp32 FMA on AVX2, for each rank"));
}

TEST(Table, json_holds_the_exact_numbers) {
  const PlanReport plan = test::small_report();
  const auto json = to_json(plan);
  EXPECT_EQ(json["format"], "nought-plan-1");
  ASSERT_EQ(json["stages"].size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(json["stages"][i]["peak"]["total"], plan.predictions[i].memory.peak_total);
    EXPECT_EQ(json["stages"][i]["steady"]["optimizer"],
              plan.predictions[i].steady[static_cast<size_t>(Category::optimizer)]);
    EXPECT_EQ(json["stages"][i]["sent_per_step"]["total_bytes"], plan.predictions[i].traffic.total_bytes());
  }
  const double palm = json["flops_per_token"]["palm_6Psi_12Lhs"], causal = json["flops_per_token"]["causal_6Psi_6Lhs"];
  EXPECT_DOUBLE_EQ(palm - causal, 6.0 * 12 * 768 * 1024);
}

TEST(Table, says_how_many_parameters_are_trained_where_some_are_frozen) {
  PlanReport plan = test::small_report();
  EXPECT_THAT(to_text(plan), Not(HasSubstr("of them trained")));
  EXPECT_EQ(to_json(plan)["trained_parameters"], plan.predictions[0].parameters);
  plan.predictions[0].frozen = plan.predictions[0].parameters - 1'500'000;
  EXPECT_THAT(to_text(plan), HasSubstr("in bf16, 1.50M of them trained"));
  EXPECT_EQ(to_json(plan)["trained_parameters"], 1'500'000);
}

TEST(Table, predicted_stands_beside_every_measured_rank) {
  const PlanReport plan = test::small_report();
  const RankMemory& memory = plan.predictions[0].memory;
  const std::string text = memory_table(memory, {memory, memory});
  EXPECT_THAT(text, HasSubstr("predicted"));
  EXPECT_THAT(text, HasSubstr("rank 1"));
}

}  // namespace
}  // namespace nought
