// The numbers of a report are the same as text, as JSON and as a chart.
#include "nought/plan/table.h"

#include <sstream>

#include "support/plan_report.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/lines.h"
#include "nought/base/text.h"

namespace nought::table_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Table, shows_all_stages_side_by_side_with_their_peaks) {
  const PlanReport plan = test::small_report();
  const std::string text = to_text(plan);
  for (const Prediction& each : plan.predictions) {
    EXPECT_THAT(text, HasSubstr(fmt::format("stage {}", each.layout.zero_stage)));
    EXPECT_THAT(text, HasSubstr(format_bytes(each.memory.peak_total)));
  }
  for (const char* part : {"65536 tokens per step", "FLOP per token, forward and backward", "as PaLM does", "gpt2"})
    EXPECT_THAT(text, HasSubstr(part));
  for (const Prediction& each : plan.recompute)
    EXPECT_THAT(text, HasSubstr(format_bytes(each.memory.peak[static_cast<size_t>(Category::activations)])));
}

TEST(Table, work_over_the_peak_is_the_least_time_of_a_step) {
  PlanReport plan = test::small_report();
  EXPECT_THAT(to_text(plan), Not(HasSubstr("at the peak")));
  plan.peak_flops = plan.predictions[1].executed_flops / 1.25, plan.peak_name = "fp32 FMA on AVX2";
  EXPECT_THAT(to_text(plan), HasSubstr(" 1.25 s"));
  plan.peak_flops *= 4;
  EXPECT_THAT(to_text(plan), HasSubstr(" 312 ms"));
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

TEST(Table, says_which_ranks_share_a_model_and_what_is_sent_along_each_axis) {
  PlanReport plan = test::small_report();
  EXPECT_THAT(to_text(plan), Not(HasSubstr("share each matrix")));
  for (Prediction& each : plan.predictions) {
    each.layout.ranks = 8, each.layout.tensor_ranks = 2, each.layout.expert_ranks = 4;
    each.layout.sequence_parallel = true, each.layout.replicas = 2;
    each.traffic_by_axes = {{"tensor", {}}, {"expert", {}}};
    each.traffic_by_axes[1].traffic.counts[static_cast<size_t>(Collective::all_to_all_v)] = {.bytes = 3 << 20};
  }
  const std::string text = to_text(plan);
  EXPECT_THAT(text, HasSubstr("8 ranks, 2 of which share each matrix and slice the tokens, 4 hold different experts, "
                              "2 replicas of all that,"));
  EXPECT_THAT(text, HasSubstr("\n  expert               3.00 MiB"));
  const auto json = to_json(plan);
  EXPECT_EQ(json["replicas"], 2);
  EXPECT_EQ(json["tensor_ranks"], 2);
  EXPECT_EQ(json["expert_ranks"], 4);
  EXPECT_EQ(json["sequence_parallel"], true);
  EXPECT_EQ(json["stages"][0]["sent_per_step_by_axes"]["expert"]["total_bytes"], 3 << 20);
}

TEST(Table, shows_the_pipeline_stages_and_what_zero_costs_there) {
  PlanReport plan = test::small_report();
  EXPECT_THAT(to_text(plan), Not(HasSubstr("cut by")));
  EXPECT_FALSE(to_json(plan).contains("pipeline_stages"));
  for (Prediction& each : plan.predictions) each.layout.pipeline = {.ranks = 2};
  plan.zero_costs = {"a line"};
  const std::string text = to_text(plan);
  EXPECT_THAT(
      text,
      HasSubstr("\ncut     stages          2   cut by \"parameters\"\n        stage 0         7   Units: embedding "
                "to block.5, "));
  EXPECT_THAT(text, HasSubstr("\n  a line\n"));
  const auto json = to_json(plan);
  ASSERT_EQ(json["pipeline_stages"].size(), 2u);
  EXPECT_EQ(json["pipeline_stages"][1]["last"], "head");
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
  const std::string text = memory_table({memory}, {memory, memory});
  EXPECT_THAT(text, HasSubstr("predicted"));
  EXPECT_THAT(text, HasSubstr("rank 1"));
}

TEST(Table, what_was_measured_stands_alone_where_nothing_was_predicted) {
  const RankMemory memory = test::small_report().predictions[0].memory;
  const std::vector<RankMemory> none;
  EXPECT_THAT(memory_table(none, {memory, memory}), AllOf(HasSubstr("rank 1"), Not(HasSubstr("predicted"))));
  EXPECT_THAT(memory_table(none, std::vector<RankMemory>(16, memory), 80),
              AllOf(HasSubstr("most of 16"), Not(HasSubstr("predicted"))));
}

TEST(Table, each_place_of_a_pipeline_has_a_prediction_of_its_own) {
  const RankMemory first = test::small_report().predictions[0].memory;
  RankMemory second = first;
  second.peak_total += int64_t{1} << 30;
  const std::string wide = memory_table({first, second}, {first, first, second, second});
  const std::string head = wide.substr(0, wide.find('\n'));
  EXPECT_THAT(head, testing::ContainsRegex("predicted +rank 0 +rank 1 +predicted +rank 2 +rank 3"));
  const std::string narrow = memory_table({first, second}, {first, first, second, second}, 60);
  EXPECT_THAT(narrow, AllOf(HasSubstr("predicted"), HasSubstr("most of 4"), Not(HasSubstr("rank 0"))));
  EXPECT_THAT(narrow, HasSubstr(format_bytes(second.peak_total))) << "the most is predicted, as it is measured";
}

TEST(Table, many_ranks_share_two_columns_where_there_is_no_room_for_each) {
  const RankMemory memory = test::small_report().predictions[0].memory;
  std::vector<RankMemory> ranks(16, memory);
  ranks[7].peak_total += int64_t{1} << 30;
  EXPECT_THAT(memory_table({memory}, ranks), HasSubstr("rank 15")) << "a file has room";
  for (const int width : {80, 120}) {
    const std::string text = memory_table({memory}, ranks, width);
    EXPECT_THAT(text, AllOf(HasSubstr("least"), HasSubstr("most of 16"), Not(HasSubstr("rank 0"))));
    EXPECT_THAT(text, HasSubstr(format_bytes(ranks[7].peak_total)));
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(columns_of(line), width);
  }
  EXPECT_THAT(memory_table({memory}, {memory, memory}, 80), HasSubstr("rank 1"));
}

}  // namespace
}  // namespace nought::table_test
