// How often a step makes the host wait for the device: once, for its sums, and once more for each count of the tokens
// that experts got. On the guarded device every wait of the host is counted, for kernels and for collectives.
#include <numeric>

#include "support/guarded_context.h"
#include "support/training_case.h"
#include <gtest/gtest.h>

namespace nought::transfers_test {
namespace {

using test::small_model;
using test::TrainingCase;
using test::TrainingRank;

/// Without the loss that balances experts, or with it.
ModelConfig experts(bool balanced) {
  ModelConfig model = small_model("experts");
  model.experts->auxiliary_loss = balanced, model.experts->auxiliary_coefficient = 0.5;
  return model;
}

TrainingCase case_of(const ModelConfig& model = small_model("grouped_heads"), const Method& method = AdamOptions{}) {
  TrainingCase each = test::learning(model);
  each.settings.optimizer = {.method = method};
  each.steps.end = 3, each.accumulation = 2, each.evaluates = true;
  return each;
}

/// What the host waits for, on one rank and on two; the results are those of the CPU to the bit. counts: of experts,
/// that a micro-batch brings to the host.
void expect_one_transfer_beside_counts(TrainingCase each, int counts = 0) {
  for (const auto& [ranks, stage] : {std::pair(1, 0), {2, 0}, {2, 3}}) {
    each.mesh = test::sharded(ranks, stage), each.guarded = true;
    SCOPED_TRACE(each.str());
    std::vector<int64_t> waits, waits_of_evaluations;
    each.on_ranks([&](TrainingRank& rank) {
      for (int64_t step = 0; step < 3; ++step) {
        const std::vector<Batch> batches = rank.batches(step);
        const double targets = rank.targets(step);
        const int64_t before = test::host_waits(rank.context);
        rank.engine.step(batches, targets, each.lr, each.clipping);
        const int64_t between = test::host_waits(rank.context);
        rank.engine.evaluate(batches, targets);
        if (!rank.is_first()) continue;
        waits.push_back(between - before);
        waits_of_evaluations.push_back(test::host_waits(rank.context) - between);
      }
    });
    EXPECT_EQ(waits, std::vector<int64_t>(3, 1 + 2 * counts));
    for (const int64_t each_wait : waits_of_evaluations) EXPECT_LT(each_wait, 2 + 2 * counts);
    const test::TrainingResult guarded = each.run();
    each.guarded = false;
    expect_same_bits(guarded, each.run());
    for (const std::vector<double>& layer : guarded.chosen)
      EXPECT_EQ(std::accumulate(layer.begin(), layer.end(), 0.0), 2.0 * 4 * 8)
          << "two choices of each token of the step, over all ranks and without those of evaluations";
  }
}

TEST(Transfers, a_step_of_a_dense_model_waits_once_for_all_its_sums) {
  expect_one_transfer_beside_counts(case_of());
  TrainingCase recomputed = case_of().in(DType::bf16);
  recomputed.recompute = Recompute::full;
  expect_one_transfer_beside_counts(recomputed);
}

TEST(Transfers, norms_of_whole_parameters_stay_on_the_device) {
  for (const Method& method : {Method(LambOptions{}), Method(MuonOptions{})})
    expect_one_transfer_beside_counts(case_of(small_model("grouped_heads"), method));
}

TEST(Transfers, scales_of_fp8_stay_on_the_device_with_and_without_history) {
  for (const Fp8Scaling scaling : {Fp8Scaling::delayed, Fp8Scaling::current}) {
    TrainingCase each = case_of().in(DType::bf16);
    each.fp8 = {.scaling = scaling, .history = 2};
    expect_one_transfer_beside_counts(each);
  }
}

TEST(Transfers, each_layer_of_experts_brings_its_counts_once_in_a_forward_pass_and_nothing_else) {
  for (const bool balanced : {false, true}) expect_one_transfer_beside_counts(case_of(experts(balanced)), 2);
  expect_one_transfer_beside_counts(case_of(small_model("latent")), 1);
  TrainingCase two_passes = case_of(experts(true)).in(DType::bf16);
  two_passes.fp8 = {.scaling = Fp8Scaling::delayed, .history = 2};
  two_passes.recompute = Recompute::full;
  expect_one_transfer_beside_counts(two_passes, 4);
}

}  // namespace
}  // namespace nought::transfers_test
