// Operations are measured once for each of their shapes, and what is not measured is what its work takes at the rates.
#include "nought/measure/operation_times.h"

#include <functional>
#include <map>
#include <string>

#include "support/watched_context.h"
#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/plan/step_work.h"

namespace nought::operation_times_test {
namespace {

const MachineRates kKnown{.flops = 1e9, .memory = 1e9, .note = {}};

MatMul product(const Context& context, int64_t size) {
  const auto matrix = [&] { return context.empty({size, size}, DType::f32); };
  return {.a = matrix(), .b = matrix(), .c = matrix()};
}

ModelConfig small_experts() {
  return ModelConfig::from_json({{"model_type", "mixtral"},
                                 {"vocab_size", 96},
                                 {"hidden_size", 32},
                                 {"intermediate_size", 48},
                                 {"num_hidden_layers", 2},
                                 {"num_attention_heads", 4},
                                 {"num_key_value_heads", 2},
                                 {"num_local_experts", 4},
                                 {"num_experts_per_tok", 2},
                                 {"max_position_embeddings", 64}});
}

TEST(OperationTimes, of_what_is_not_measured_are_its_work_at_the_rates) {
  const Context context{Memory::create_virtual(), nullptr};
  OperationTimes times(kKnown);
  EXPECT_DOUBLE_EQ(times.seconds(product(context, 100)), 2e6 / 1e9);
  const Tensor tensor = context.empty({1000}, DType::f32);
  EXPECT_DOUBLE_EQ(times.seconds(AddTo{.x = tensor, .into = tensor}), 3 * 4000 / 1e9);
}

TEST(OperationTimes, are_measured_on_all_ranks_by_shape_unless_they_take_long) {
  const Context shapes{Memory::create_virtual(), nullptr};
  run_ranks(2, [&](Communicator& ranks, const Context& context) {
    MachineRates slow = kKnown;
    slow.flops = 1;
    OperationTimes times(kKnown), long_ones(slow);
    times.seconds(product(shapes, 48)), long_ones.seconds(product(shapes, 48));
    times.measure(ranks, context, 0), long_ones.measure(ranks, context, 0);
    EXPECT_GT(times.seconds(product(shapes, 48)), 0);
    EXPECT_NE(times.seconds(product(shapes, 48)), 2.0 * 48 * 48 * 48 / 1e9);
    EXPECT_DOUBLE_EQ(long_ones.seconds(product(shapes, 48)), 2.0 * 48 * 48 * 48);
    EXPECT_DOUBLE_EQ(times.seconds(product(shapes, 50)), 2.0 * 50 * 50 * 50 / 1e9) << "of another shape";
    EXPECT_LE(times.rates().fastest, 1);
    EXPECT_GE(times.rates().slowest, 1);
  });
}

/// In a step they do not find in the caches what was just written there, and an update finds nothing of itself.
TEST(OperationTimes, are_measured_behind_as_many_bytes_as_pass_before_them) {
  int64_t filled = 0;
  std::map<std::string, int64_t, std::less<>> behind;  // by operation: the bytes that were written right before it
  const Context context =
      test::watched(Context::cpu(), [&](std::string_view operation, std::string_view, auto& values) {
        if (operation == "Fill") filled = values.bytes();
        if (operation != "Fill") behind.try_emplace(std::string(operation), filled);
      });
  const Context shapes{Memory::create_virtual(), nullptr};
  const auto states = [&] { return shapes.empty({1 << 20}, DType::f32); };
  OperationTimes times({.flops = 1e15, .memory = 1e15, .note = {}});
  times.seconds(product(shapes, 48));
  times.seconds(Adam{.parameter = states(), .exp_avg = states(), .exp_avg_sq = states(), .gradient = states()});
  times.measure(*make_self_communicator(), context, 0);
  EXPECT_GE(behind["MatMul"], 512 << 10);
  EXPECT_GE(behind["Adam"], 16 << 20);
}

TEST(OperationTimes, of_a_step_without_measurements_are_the_work_that_is_predicted) {
  const ModelConfig config = small_experts();
  for (const int stage : {0, 3}) {
    const Layout layout{
        .ranks = 2, .zero_stage = stage, .micro_batch = 2, .seq_length = 32, .accumulation = 6, .wire = Wire::threads};
    OperationTimes times(kKnown);
    const StepWork work = work_of_step(config, layout, 0, times);
    const Prediction predicted = predict(config, layout);
    EXPECT_NEAR(work.products, predicted.executed_flops / 1e9, 1e-9 * work.products);
    EXPECT_NEAR(work.update, predicted.update_bytes / 1e9, 1e-9 * work.update);
    EXPECT_NEAR(work.other, predicted.other_bytes / 1e9, 1e-9 * work.other);
    EXPECT_EQ(work.operations, predicted.operations);
    EXPECT_GT(host_seconds(config, layout), 0);
  }
}

/// Everything that a step runs can be run alone, with values that mean nothing.
TEST(OperationTimes, measure_every_operation_of_a_step) {
  const ModelConfig config = small_experts();
  const Layout layout{.ranks = 2, .zero_stage = 2, .expert_ranks = 2, .micro_batch = 2, .seq_length = 32};
  OperationTimes times({.flops = 1e15, .memory = 1e15, .note = {}});
  const StepWork estimated = work_of_step(config, layout, 0, times);
  const auto self = make_self_communicator();
  times.measure(*self, Context::cpu(), 0);
  const StepWork measured = work_of_step(config, layout, 0, times);
  EXPECT_GT(measured.products, estimated.products) << "no machine is as fast as that";
  EXPECT_GT(measured.other, estimated.other);
  EXPECT_EQ(times.refused(), 0);
}

}  // namespace
}  // namespace nought::operation_times_test
