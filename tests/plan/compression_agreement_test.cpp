// What is predicted of ranks that send one bit per element or factors is what happens: memory and traffic, before and
// after.
#include "support/agreement.h"
#include "support/size.h"
#include <gtest/gtest.h>

#include "nought/optim/compressed_phase.h"

namespace nought::compression_agreement_test {
namespace {

NOUGHT_FILE_SIZE(medium);

using test::expect_agreement;
using test::measure;

TEST(CompressionAgreement, memory_and_traffic_of_compressed_steps_are_predicted) {
  int i = 0;
  for (const int ranks : {1, 2, 3})
    for (const int way : {0, 1, 2, 3}) {
      if (ranks != 2 && (way + ranks) % 3 != 0) continue;
      const DType dtype = ++i % 2 == 0 ? DType::bf16 : DType::f32;
      Layout layout{.ranks = ranks,
                    .zero_stage = 0,
                    .micro_batch = 2,
                    .seq_length = 128,
                    .accumulation = 1 + i % 2,
                    .sharding = {.dtype = dtype, .gradient_dtype = dtype, .overlap = i % 3 == 0},
                    .wire = Wire::threads};
      Method& method = layout.sharding.optimizer.method;
      if (way == 0) method = OneBitAdamOptions{.freeze_step = 1};
      if (way == 1) method = OneBitLambOptions{.freeze_step = 1};
      if (way == 2)
        method = ZeroOneAdamOptions{
            .var_freeze_step = 3, .var_update_scaler = 1, .local_step_scaler = 100, .local_step_clipper = 1};
      if (way == 3) layout.sharding.power_sgd = PowerSgdOptions{.rank = 2, .start_iter = 1};
      SCOPED_TRACE(fmt::format("way {} on {} ranks in {}", way, ranks, name_of(dtype)));
      const ModelConfig config = test::model_of(i % 2 == 0 ? "llama" : "gpt2");
      const Prediction predicted = predict(config, layout);
      expect_agreement(predicted, measure(config, layout));
      if (ranks == 1) continue;
      ASSERT_TRUE(predicted.traffic_before);
      Layout plain = layout;
      plain.sharding.optimizer.method = way == 1 ? Method(LambOptions{}) : Method(AdamOptions{});
      plain.sharding.power_sgd.reset();
      // Plain Lamb adds up the squares of its shards, too; here every rank has all.
      const int64_t norms = way == 1 ? 4096 : 0, before = predict(config, plain).traffic.total_bytes();
      EXPECT_LE(predicted.traffic_before->total_bytes(), before);
      EXPECT_GE(predicted.traffic_before->total_bytes(), before - norms);
      EXPECT_LT(predicted.traffic.total_bytes(),
                predicted.traffic_before->total_bytes() / (dtype == DType::f32 ? 8 : 4));
    }
}

TEST(CompressionAgreement, a_run_that_never_compresses_is_planned_as_a_plain_one) {
  const ShardedModel::Options options{.optimizer = {.method = OneBitAdamOptions{.freeze_step = 100}}};
  EXPECT_EQ(updates_before_compression(with_early_compression(options, 100)), 0);
  EXPECT_EQ(updates_before_compression(with_early_compression(options, 101)), 1);
  const ShardedModel::Options factors{.power_sgd = PowerSgdOptions{.start_iter = 10}};
  EXPECT_EQ(updates_before_compression(with_early_compression(factors, 10)), 0);
  EXPECT_EQ(updates_before_compression(with_early_compression(factors, 11)), 1);
}

}  // namespace
}  // namespace nought::compression_agreement_test
