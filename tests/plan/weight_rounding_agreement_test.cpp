// What is predicted of runs that compute with rounded weights is what their ledger says.
#include "support/agreement.h"
#include "support/size.h"
#include <gtest/gtest.h>

namespace nought::weight_rounding_agreement_test {
namespace {

NOUGHT_FILE_SIZE(medium);

using test::expect_agreement;
using test::measure;
using test::Measurement;
using test::model_of;

TEST(WeightRoundingAgreement, holds_at_stages_and_over_tensor_ranks) {
  for (const auto& [stage, tensor_ranks] : {std::pair(0, 1), {3, 1}, {2, 2}}) {
    SCOPED_TRACE(fmt::format("stage {}, {} tensor ranks", stage, tensor_ranks));
    Layout layout{.ranks = 2, .zero_stage = stage, .micro_batch = 2, .seq_length = 64, .accumulation = 2};
    layout.wire = Wire::threads, layout.tensor_ranks = tensor_ranks;
    const Prediction plain = predict(model_of("llama"), layout);
    layout.sharding.weight_quantization = WeightQuantization{
        .quantize_groups = 4,
        .stochastic = true,
        .mixed_change = 0.01,
        .groups = {
            {.name = "all", .modules = {"self_attn"}, .bits = {.start_bits = 8, .target_bits = 4, .period = 3}}}};
    const Measurement measured = measure(model_of("llama"), layout);
    const Prediction predicted = predict(model_of("llama"), layout);
    expect_agreement(predicted, measured);
    EXPECT_EQ(measured.late_allocations, 0);
    EXPECT_GE(predicted.memory.peak_total, plain.memory.peak_total + (tensor_ranks == 1 ? 1 : 0));
  }
}

TEST(WeightRoundingAgreement, holds_of_training_for_few_bits_and_of_masks) {
  for (const auto& [stage, tensor_ranks] : {std::pair(0, 1), {3, 1}, {2, 2}}) {
    SCOPED_TRACE(fmt::format("stage {}, {} tensor ranks", stage, tensor_ranks));
    Layout layout{.ranks = 2, .zero_stage = stage, .micro_batch = 2, .seq_length = 64, .accumulation = 2};
    layout.wire = Wire::threads, layout.tensor_ranks = tensor_ranks;
    const Prediction plain = predict(model_of("llama"), layout);
    layout.sharding.qat = Qat{.mode = QatMode::int8_int4, .group_size = 8, .start_step = 1};
    layout.sharding.sparse_pruning = SparsePruning{.schedule_offset = 1, .groups = {{"all", {"mlp"}, 0.5}}};
    layout.fp8.inputs = layout.sharding.qat->inputs();
    const Measurement measured = measure(model_of("llama"), layout);
    const Prediction predicted = predict(model_of("llama"), layout);
    expect_agreement(predicted, measured);
    EXPECT_GT(predicted.memory.peak_total, plain.memory.peak_total);
  }
}

}  // namespace
}  // namespace nought::weight_rounding_agreement_test
