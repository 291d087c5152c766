#include "nought/plan/pass_times.h"

#include <numeric>

#include "support/size.h"
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::pass_times_test {
namespace {

ModelConfig llama() {
  return ModelConfig::from_json({{"model_type", "llama"},
                                 {"vocab_size", 96},
                                 {"hidden_size", 32},
                                 {"intermediate_size", 48},
                                 {"num_hidden_layers", 6},
                                 {"num_attention_heads", 4},
                                 {"max_position_embeddings", 64},
                                 {"tie_word_embeddings", false}});
}

Layout layout(const Pipeline& pipeline) {
  return {.ranks = static_cast<int>(pipeline.ranks),
          .pipeline = pipeline,
          .micro_batch = 2,
          .seq_length = 16,
          .accumulation = 8,
          .wire = Wire::threads};
}

double sum_of(const std::vector<PassTimes>& times) {
  return std::accumulate(times.begin(), times.end(), 0.0, [](double sum, const PassTimes& each) {
    return sum + each.forward + each.backward + each.weight_gradients;
  });
}

NOUGHT_SIZE(medium);
TEST(PassTimes, of_all_stages_are_the_work_that_is_predicted_for_a_step) {
  for (const PipelineSchedule schedule :
       {PipelineSchedule::one_f_one_b, PipelineSchedule::interleaved, PipelineSchedule::zbv}) {
    const Pipeline pipeline{.schedule = schedule, .ranks = 2, .chunks = default_chunks(schedule)};
    for (const Recompute mode : {Recompute::none, Recompute::full}) {
      Layout of = layout(pipeline);
      of.recompute.mode = mode;
      double predicted = 0;
      for (int place = 0; place < 2; ++place) predicted += predict_at(llama(), of, place).executed_flops;
      const std::vector<PassTimes> times = modelled_times(llama(), of, /*rate=*/1);
      ASSERT_EQ(std::ssize(times), pipeline.stages());
      EXPECT_NEAR(8 * sum_of(times), predicted, 0.02 * predicted) << "but for norms and the update";
    }
  }
}

TEST(PassTimes, fall_with_the_rate_and_tell_the_head_from_blocks) {
  const Layout of = layout({.ranks = 4});
  const std::vector<PassTimes> times = modelled_times(llama(), of, 1), faster = modelled_times(llama(), of, 1e3);
  EXPECT_NEAR(sum_of(faster), sum_of(times) / 1e3, 1e-9 * sum_of(times));
  EXPECT_GT(times[1].weight_gradients, 0) << "they are told apart from the backward pass";
  EXPECT_NEAR(times[1].backward, times[1].forward, 0.5 * times[1].forward);
  EXPECT_GT(times[3].forward, times[3].backward) << "the head forms its gradients in its forward pass";
}

TEST(PassTimes, means_are_those_that_a_timeline_was_made_of) {
  for (const PipelineSchedule schedule : {PipelineSchedule::gpipe, PipelineSchedule::zbh1, PipelineSchedule::zbv}) {
    const Pipeline pipeline{.schedule = schedule, .ranks = 2, .chunks = default_chunks(schedule)};
    std::vector<PassTimes> times;
    for (int64_t stage = 0; stage < pipeline.stages(); ++stage)
      times.push_back({.forward = 1.0 + static_cast<double>(stage), .backward = 2, .weight_gradients = 3});
    const std::vector<PassTimes> means = mean_times(pipeline_timeline(pipeline, 4, times, 0.5), pipeline);
    for (size_t stage = 0; stage < times.size(); ++stage) {
      const bool splits = schedule != PipelineSchedule::gpipe;
      EXPECT_DOUBLE_EQ(means[stage].forward, times[stage].forward);
      EXPECT_DOUBLE_EQ(means[stage].backward, splits ? 2 : 5);
      EXPECT_DOUBLE_EQ(means[stage].weight_gradients, splits ? 3 : 0);
    }
  }
  EXPECT_THROW(mean_times({.chunks = 1, .ranks = {{}, {}}}, {.ranks = 2}), Error);
}

}  // namespace
}  // namespace nought::pass_times_test
