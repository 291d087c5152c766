// What is predicted for every stage of a pipeline is what happens there: by every schedule, at every ZeRO stage, and
// where ranks share matrices and hold different experts too.
#include "support/agreement.h"
#include "support/size.h"
#include <gtest/gtest.h>

namespace nought::pipeline_agreement_test {
namespace {

NOUGHT_FILE_SIZE(medium);

using test::model_of;

constexpr PipelineSchedule kSchedules[] = {PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b,
                                           PipelineSchedule::interleaved, PipelineSchedule::zbh1,
                                           PipelineSchedule::zbv};

/// The ledger and the counters of every pipeline stage say what was predicted of it, and nothing is allocated late.
void expect_plan_to_hold(const ModelConfig& config, const Layout& layout) {
  const std::vector<Prediction> predicted = predict_places(config, layout);
  const std::vector<test::Measurement> measured = test::measure_places(config, layout);
  ASSERT_EQ(predicted.size(), measured.size());
  int64_t largest = 0;
  for (size_t place = 0; place < measured.size(); ++place) {
    SCOPED_TRACE(fmt::format("pipeline rank {}", place));
    test::expect_agreement(predicted[place], measured[place]);
    EXPECT_EQ(measured[place].late_allocations, 0);
    largest = std::max(largest, predicted[place].memory.peak_total);
  }
  EXPECT_EQ(predict(config, layout).memory.peak_total, largest) << "the one that `plan` shows";
}

struct Case {
  int ranks, stages, tensor, zero_stage;
};

Layout layout_of_case(const Case& of, PipelineSchedule schedule, int turn) {
  const std::array recomputes{Recompute::none, Recompute::full, Recompute::selective};
  return {.ranks = of.ranks,
          .zero_stage = of.zero_stage,
          .tensor_ranks = of.tensor,
          .pipeline = {.schedule = schedule, .ranks = of.stages, .chunks = default_chunks(schedule)},
          .sequence_parallel = of.tensor > 1 && turn % 2 == 0,
          .micro_batch = 2,
          .seq_length = 64,
          .accumulation = of.stages + (turn % 2) * of.stages,
          .recompute = recomputes[static_cast<size_t>(turn) % recomputes.size()],
          .sharding = {.dtype = turn % 2 == 0 ? DType::bf16 : DType::f32},
          .wire = Wire::threads};
}

TEST(PipelineAgreement, holds_for_every_schedule_at_every_zero_stage) {
  int turn = 0;
  for (const PipelineSchedule schedule : kSchedules) {
    // The ZeRO stages that shard take turns.
    for (const Case& each : {Case{4, 4, 1, 0}, Case{4, 2, 1, 1 + turn / 2 % 3}}) {
      const char* family = std::array{"llama", "qwen2", "gpt2"}[static_cast<size_t>(turn) % 3];
      const Layout layout = layout_of_case(each, schedule, turn++);
      SCOPED_TRACE(fmt::format("{}, {} with {} of {} ranks, {}", family, name_of(schedule), each.stages, each.ranks,
                               layout.str()));
      expect_plan_to_hold(model_of(family, each.stages * layout.pipeline.chunks - 2), layout);
    }
  }
}

TEST(PipelineAgreement, holds_beside_ranks_that_share_matrices_and_shard) {
  int turn = 0;
  for (const auto& [schedule, of] : {std::pair(PipelineSchedule::one_f_one_b, Case{4, 2, 2, 0}),
                                     {PipelineSchedule::interleaved, {4, 2, 2, 0}},
                                     {PipelineSchedule::zbv, {8, 2, 2, 2}},
                                     {PipelineSchedule::zbh1, {8, 2, 2, 3}}}) {
    const Layout layout = layout_of_case(of, schedule, turn++);
    SCOPED_TRACE(fmt::format("{} on {} ranks, {}", name_of(schedule), of.ranks, layout.str()));
    expect_plan_to_hold(model_of("llama", 2 * layout.pipeline.chunks - 2), layout);
  }
}

/// Tokens choose every expert, so that the choices are balanced, as the dry run takes them to be.
TEST(PipelineAgreement, holds_for_stages_whose_ranks_hold_different_experts) {
  int turn = 0;
  for (const PipelineSchedule schedule : kSchedules) {
    Layout layout = layout_of_case({4, 2, 1, 3 - turn % 4}, schedule, turn);
    layout.expert_ranks = 2;
    SCOPED_TRACE(fmt::format("{}, {}", name_of(schedule), layout.str()));
    ModelConfig config = model_of("mixtral", 2 * layout.pipeline.chunks - 2);
    config.experts->rule.top_k = config.experts->num_experts;
    expect_plan_to_hold(config, layout);
    ++turn;
  }
}

/// A stage sends the activations of each micro-batch once, and their gradients once, to each neighbour of its chunks.
TEST(PipelineAgreement, traffic_between_stages_is_one_message_per_boundary_and_direction) {
  for (const PipelineSchedule schedule : kSchedules) {
    Layout layout = layout_of_case({4, 4, 1, 0}, schedule, 0);
    layout.accumulation = 8;
    const std::vector<Prediction> places = predict_places(model_of("llama", 6), layout);
    int64_t messages = 0, elements = 0;
    for (const Prediction& each : places)
      for (const Mesh::GroupTraffic& group : each.traffic_by_axes)
        if (group.axes == "neighbouring stages")
          messages += group.traffic[Collective::send].calls, elements += group.traffic[Collective::send].elements;
    // ZB-V turns on the last rank, where one chunk hands on to the other without a message.
    const int64_t stages = 4 * layout.pipeline.chunks;
    const int64_t boundaries = stages - 1 - (schedule == PipelineSchedule::zbv ? 1 : 0);
    EXPECT_EQ(messages, 2 * 8 * boundaries) << name_of(schedule);
    EXPECT_EQ(elements, messages * 2 * 64 * 128) << name_of(schedule);
  }
}

}  // namespace
}  // namespace nought::pipeline_agreement_test
