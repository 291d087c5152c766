// training.virtual_ranks: what it sets, and what it is refused with.
#include "support/resolved.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::resolve_virtual_ranks_test {
namespace {

using test::error_of;
using test::value_of;
using testing::HasSubstr;

constexpr const char* kRun = R"({
  "data": {"seq_length": 64},
  "training": {"per_device_train_batch_size": 1, "virtual_ranks": 8, "bf16": true, "output_dir": "out"}})";

RunPlan plan_of(int ranks, const std::vector<std::string>& more = {}) { return test::plan_of(kRun, ranks, more); }

std::string error(int ranks, const std::vector<std::string>& more) { return error_of(kRun, ranks, more); }

TEST(ResolveVirtualRanks, are_ranks_times_the_accumulation_that_follows_from_them) {
  for (const int ranks : {1, 2, 4, 8}) {
    const RunPlan plan = plan_of(ranks);
    EXPECT_EQ(plan.layout.sharding.virtual_ranks, 8);
    EXPECT_EQ(plan.layout.accumulation, 8 / ranks);
    EXPECT_EQ(plan.layout.train_batch(), 8);
    EXPECT_EQ(plan.layout.sharding.gradient_dtype, DType::f32);
    EXPECT_EQ(plan.layout.sharding.wire(), DType::f32);
  }
  EXPECT_EQ(plan_of(4, {"training.gradient_accumulation_steps=2"}).layout.accumulation, 2);
  EXPECT_EQ(test::plan_of(test::kExampleRun, 2).layout.sharding.virtual_ranks, 0);
}

TEST(ResolveVirtualRanks, are_told_with_what_they_cost_and_hold) {
  EXPECT_EQ(value_of(plan_of(8), "virtual_ranks.sums"), "no memory: a micro-batch in a step");
  EXPECT_EQ(value_of(plan_of(1), "virtual_ranks.sums"),
            "3 of all gradients in fp32, 2 more than without virtual ranks");
  EXPECT_EQ(value_of(plan_of(4, {"deepspeed.zero_optimization.stage=2"}), "virtual_ranks.sums"),
            "1 of this rank's shard of the gradients in fp32");
  EXPECT_THAT(value_of(plan_of(4, {"training.parallelism_config.tp_size=2"}), "virtual_ranks.bits"),
              HasSubstr("with tp_size 2; another tp_size agrees up to rounding"));
}

TEST(ResolveVirtualRanks, that_no_ranks_and_accumulation_make_are_refused_with_what_fits) {
  EXPECT_THAT(error(2, {"training.gradient_accumulation_steps=2"}),
              HasSubstr("2 data-parallel ranks x gradient_accumulation_steps 2 make 4; 4 would fit"));
  EXPECT_THAT(error(3, {}), HasSubstr("3 data-parallel ranks do not divide it; 1, 2, 4, 8 would fit"));
  EXPECT_THAT(error(16, {}), HasSubstr("16 data-parallel ranks do not divide it"));
  EXPECT_THAT(error(2, {"training.virtual_ranks=6"}), HasSubstr("expected 0 or a power of two up to 4096, got 6"));
  EXPECT_THAT(error(2, {"training.virtual_ranks=-2"}), HasSubstr("got -2"));
}

TEST(ResolveVirtualRanks, are_refused_with_what_has_the_bits_of_its_own_ranks) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"training.parallelism_config.cp_size=2", "cp_size or sp_size above 1"},
      {"training.parallelism_config.sp_size=2", "cp_size or sp_size above 1"},
      {"training.parallelism_config.ep_size=2", "ep_size above 1"},
      {"deepspeed.optimizer.type=Lamb", "Lamb"},
      {"deepspeed.optimizer.type=OneBitAdam", "OneBitAdam"},
      {"training.ddp_comm_hook.comm_hook=power_sgd", "training.ddp_comm_hook"},
      {"deepspeed.data_types.grad_accum_dtype=bf16", "grad_accum_dtype other than fp32"},
      {"deepspeed.communication_data_type=bf16", "communication_data_type other than fp32"},
      {"deepspeed.prescale_gradients=false", "prescale_gradients = false"}};
  for (const auto& [key, named] : cases) {
    EXPECT_THAT(error(4, {key}), HasSubstr("training.virtual_ranks: not with ")) << key;
    EXPECT_THAT(error(4, {key}), HasSubstr(named)) << key;
  }
  EXPECT_THAT(
      error(4, {"deepspeed.zero_optimization.stage=3", "deepspeed.zero_optimization.zero_quantized_gradients=true"}),
      HasSubstr("ZeRO++'s quantized weights or gradients"));
  EXPECT_THAT(error(4, {"deepspeed.zero_optimization.stage=1", "training.async_data_parallel.staleness=1"}),
              HasSubstr("training.async_data_parallel"));
  EXPECT_THAT(error(4, {"training.parallelism_config.dp_replicate_size=2", "training.diloco.sync_every=20"}),
              HasSubstr("training.diloco"));
}

}  // namespace
}  // namespace nought::resolve_virtual_ranks_test
