// Two micro-batches between their passes at once, and weight gradients that are formed later: the bits of the plain
// order wherever gradients are added in the same order, and the same up to rounding elsewhere.
#include <array>

#include "support/schedules.h"
#include "support/sweep.h"
#include "support/training_case.h"
#include <gtest/gtest.h>

namespace nought::interleaved_test {
namespace {

using test::small_model;
using test::TrainingCase;
using test::TrainingRank;
using test::TrainingResult;

/// Steps of plain gradient descent, each of two micro-batches.
TrainingCase descending(const ModelConfig& model) {
  TrainingCase each = test::learning(model);
  each.settings.optimizer = {.method = SgdOptions{}};
  each.steps.end = 3, each.rows.length = 12, each.accumulation = 2;
  each.lr = 0.1, each.clipping = 0;
  each.schedule = "F0 B0 F1 B1 reduce update";
  return each;
}

/// With the loss of its routers, which each micro-batch has a log for.
ModelConfig balanced_experts() {
  ModelConfig model = small_model("experts", 3);
  model.experts->auxiliary_loss = true, model.experts->auxiliary_coefficient = 0.5;
  return model;
}

/// Stages with one way to recompute each, so that all of both meet.
std::vector<TrainingCase> layouts_of(const ModelConfig& model) {
  RecomputeOptions together = Recompute::full;
  together.checkpoints = 2, together.contiguous = true;
  const std::array<RecomputeOptions, 4> ways{Recompute::none, Recompute::selective, Recompute::full, together};
  std::vector<TrainingCase> all;
  for (const int ranks : {1, 2})
    for (const int stage : {0, 1, 2, 3})
      for (size_t way = 0; way < ways.size(); ++way) {
        if (ranks == 1 ? stage > 0 : way % 2 != static_cast<size_t>(stage) % 2) continue;
        const size_t i = all.size();
        TrainingCase each = descending(model);
        each.mesh = test::sharded(ranks, stage);
        each.recompute = ways[way];
        each.settings.reduce_bucket = each.settings.gather_bucket = std::array<int64_t, 3>{0, 3000, 1'000'000}[i % 3];
        each.settings.overlap = i % 5 != 4;
        all.push_back(each);
      }
  return all;
}

struct Order {
  const char* text;
  bool plain;  // every gradient is added to in the order of the plain schedule, unless embeddings are tied
};
constexpr Order kOrders[] = {
    {"F0 F1 B0 B1 reduce update", true},       {"F0 F1 B1 B0 reduce update", false},
    {"F0 B0 W0 F1 B1 W1 reduce update", true}, {"F0 F1 B0 B1 W0 W1 reduce update", true},
    {"F0 F1 B0 W0 B1 W1 reduce update", true}, {"F0 F1 B1 B0 W1 W0 reduce update", false},
    {"F0 B0 F1 B1 W0 W1 reduce update", true}, {"F0 F1 B0 B1 W0 reduce update", false},
    {"F0 B0 F1 W0 B1 reduce update", true},
};

/// Cases have every third order in turn.
void expect_all_orders(const TrainingCase& each, int turn = 0) {
  const TrainingResult plain = each.run();
  EXPECT_LT(plain.losses.back(), plain.losses.front()) << "nothing is learned, so the test says little";
  // Each micro-batch is reduced alone: then sums over two of them do not depend on their order.
  const bool reduces_each = each.mesh.ranks() > 1 && each.mesh.stage >= 2;
  for (const auto& [text, same_order] : kOrders) {
    if (!test::samples(turn++, 3)) continue;
    TrainingCase other = each;
    other.schedule = text;
    const TrainingResult result = other.run();
    if (reduces_each || (same_order && !each.model.tie_word_embeddings)) {
      expect_same_bits(result, plain);
    } else {
      expect_close(result, plain, 0, 1e-6);
      EXPECT_EQ(result.chosen, plain.chosen);
    }
  }
}

TEST(Interleaved, a_dense_decoder_has_the_bits_of_the_plain_order) {
  int turn = 0;
  for (const TrainingCase& each : layouts_of(small_model("grouped_heads", 4))) expect_all_orders(each, turn++);
}

TEST(Interleaved, a_tied_head_has_the_bits_of_the_plain_order_where_each_micro_batch_is_reduced) {
  ModelConfig tied = small_model("grouped_heads", 4);
  tied.tie_word_embeddings = true;
  int turn = 0;
  for (const TrainingCase& each : layouts_of(tied))
    if (each.recompute.mode != Recompute::selective) expect_all_orders(each, turn++);
}

TEST(Interleaved, experts_and_the_loss_of_their_routers_have_the_bits_of_the_plain_order) {
  int turn = 0;
  for (const TrainingCase& each : layouts_of(balanced_experts())) expect_all_orders(each, turn++);
}

TEST(Interleaved, factors_of_8_bits_have_the_bits_of_the_plain_order) {
  for (const int stage : {2, 3}) {
    TrainingCase each = descending(small_model("grouped_heads", 4));
    each.mesh = test::sharded(2, stage);
    each.fp8 = {.scaling = Fp8Scaling::delayed, .history = 2};
    expect_all_orders(each);
  }
}

TEST(Interleaved, accumulate_runs_the_list_without_its_update_and_other_lists_are_refused) {
  descending(small_model("grouped_heads")).on_ranks([](TrainingRank& rank) {
    const std::vector<Batch> batches = rank.batches(0);
    const double targets = rank.targets(0), plain = rank.engine.accumulate(batches, targets).grad_norm;
    rank.model.discard_gradients();
    rank.engine.set_schedule(test::always("F0 F1 B0 B1 W0 W1 reduce update"));
    EXPECT_EQ(rank.engine.accumulate(batches, targets).grad_norm, plain);
    EXPECT_EQ(rank.model.optimizer().updates(), 0);
    rank.model.discard_gradients();
    rank.engine.set_schedule(test::always("F0 B0 reduce update"));
    EXPECT_THROW(rank.step(0), Error) << "a schedule of another number of micro-batches";
    rank.engine.set_schedule(test::always("F0 F1 B0 B1"));
    EXPECT_THROW(rank.step(0), Error) << "it updates nothing";
  });
}

}  // namespace
}  // namespace nought::interleaved_test
