// Two micro-batches between their passes at once, and weight gradients that are formed later: the bits of the plain
// order wherever gradients are added in the same order, and the same up to rounding elsewhere.
#include <algorithm>
#include <array>
#include <cmath>

#include "support/schedules.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/comm/thread.h"
#include "nought/models/decoder.h"
#include "nought/train/engine.h"

namespace nought::interleaved_test {
namespace {

constexpr int64_t kLength = 12, kVocabulary = 64;

ModelConfig dense(bool tied) {
  return ModelConfig::from_json({{"model_type", "llama"},
                                 {"vocab_size", kVocabulary},
                                 {"hidden_size", 32},
                                 {"intermediate_size", 48},
                                 {"num_hidden_layers", 4},
                                 {"num_attention_heads", 4},
                                 {"num_key_value_heads", 2},
                                 {"max_position_embeddings", 32},
                                 {"tie_word_embeddings", tied}});
}

/// With the loss of its routers, which each micro-batch has a log for.
ModelConfig experts() {
  return ModelConfig::from_json({{"model_type", "mixtral"},
                                 {"vocab_size", kVocabulary},
                                 {"hidden_size", 32},
                                 {"intermediate_size", 24},
                                 {"num_hidden_layers", 3},
                                 {"num_attention_heads", 4},
                                 {"num_key_value_heads", 2},
                                 {"num_local_experts", 4},
                                 {"num_experts_per_tok", 2},
                                 {"max_position_embeddings", 32},
                                 {"output_router_logits", true},
                                 {"router_aux_loss_coef", 0.5}});
}

struct Layout {
  int ranks = 1, stage = 0;
  RecomputeOptions recompute = {};
  int64_t bucket = 0;
  bool overlap = true;
  Fp8Scaling fp8 = Fp8Scaling::none;

  std::string str() const {
    return fmt::format("{} ranks, stage {}, bucket {}, overlap {}, {}", ranks, stage, bucket, overlap, recompute.str());
  }
  /// True if each micro-batch is reduced alone: then sums over two of them do not depend on their order.
  bool reduces_each() const { return ranks > 1 && stage >= 2; }
};

Batch batch_of(const Context& context, int32_t seed) {
  Batch batch{context.empty({1, kLength}, DType::i32), context.empty({1, kLength}, DType::i32)};
  for (int32_t i = 0; i < kLength; ++i) {
    batch.input_ids.data<int32_t>()[i] = (seed * 11 + i * (3 + seed % 5)) % kVocabulary;
    batch.targets.data<int32_t>()[i] = (seed * 11 + (i + 1) * (3 + seed % 5)) % kVocabulary;
  }
  return batch;
}

struct Result {
  std::vector<double> losses, norms;
  std::vector<float> weights;
  std::vector<std::vector<double>> chosen;  // by the routers
};

/// Three steps of plain gradient descent, each of two micro-batches.
Result train(const ModelConfig& config, const Layout& layout, const std::string& schedule) {
  Result result;
  run_ranks(layout.ranks, [&](Communicator& ranks, const Context& context) {
    Decoder decoder(config, layout.recompute, {.scaling = layout.fp8, .history = 2});
    ShardedModel model(context, ranks, decoder,
                       {.policy = Policy::stage(layout.stage),
                        .overlap = layout.overlap,
                        .optimizer = {.method = SgdOptions{}},
                        .reduce_bucket = layout.bucket,
                        .gather_bucket = layout.bucket});
    model.load(InitialState(5));
    Engine engine(model);
    engine.set_schedule(test::always(schedule));
    Result mine;
    for (int32_t step = 0; step < 3; ++step) {
      const std::vector<Batch> batches{batch_of(context, 4 * step + ranks.rank()),
                                       batch_of(context, 4 * step + 2 + ranks.rank())};
      const StepResult each = engine.step(batches, 2.0 * kLength * layout.ranks, 0.1, 0);
      mine.losses.push_back(each.loss), mine.norms.push_back(each.grad_norm);
    }
    mine.chosen = decoder.router_loads().chosen;
    for (size_t unit = 0; unit < decoder.units().size(); ++unit)
      model.with_parameters(unit, [&](const Parameter&, const Tensor& whole) {
        for (const float value : whole.to_vector<float>()) mine.weights.push_back(value);
      });
    if (ranks.rank() == 0) result = std::move(mine);
  });
  return result;
}

void expect_same_bits(const Result& a, const Result& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.norms, b.norms);
  EXPECT_EQ(a.weights, b.weights);
  EXPECT_EQ(a.chosen, b.chosen);
}

void expect_equal_but_for_rounding(const Result& a, const Result& b) {
  for (size_t i = 0; i < a.losses.size(); ++i) {
    EXPECT_NEAR(a.losses[i], b.losses[i], 1e-6);
    EXPECT_NEAR(a.norms[i], b.norms[i], 1e-6);
  }
  ASSERT_EQ(a.weights.size(), b.weights.size());
  float most = 0;
  for (size_t i = 0; i < a.weights.size(); ++i) most = std::max(most, std::abs(a.weights[i] - b.weights[i]));
  EXPECT_LE(most, 1e-6F);
  EXPECT_EQ(a.chosen, b.chosen);
}

std::vector<Layout> layouts() {
  RecomputeOptions together = Recompute::full;
  together.checkpoints = 2, together.contiguous = true;
  std::vector<Layout> all;
  for (const int ranks : {1, 2})
    for (const int stage : {0, 1, 2, 3})
      for (const RecomputeOptions& recompute :
           {RecomputeOptions(Recompute::none), RecomputeOptions(Recompute::selective),
            RecomputeOptions(Recompute::full), together}) {
        if (ranks == 1 && stage > 0) continue;  // one rank has nothing to shard
        const size_t i = all.size();
        all.push_back({.ranks = ranks,
                       .stage = stage,
                       .recompute = recompute,
                       .bucket = std::array<int64_t, 3>{0, 3000, 1'000'000}[i % 3],
                       .overlap = i % 5 != 4});
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

void check(const ModelConfig& config, bool tied, const Layout& layout) {
  const Result plain = train(config, layout, "F0 B0 F1 B1 reduce update");
  EXPECT_LT(plain.losses.back(), plain.losses.front()) << "nothing is learned, so the test says little";
  for (const auto& [text, same_order] : kOrders) {
    SCOPED_TRACE(fmt::format("{}: {}", layout.str(), text));
    const Result result = train(config, layout, text);
    if (layout.reduces_each() || (same_order && !tied)) {
      expect_same_bits(result, plain);
    } else {
      expect_equal_but_for_rounding(result, plain);
    }
  }
}

TEST(Interleaved, a_dense_decoder_has_the_bits_of_the_plain_order) {
  for (const Layout& layout : layouts()) check(dense(false), false, layout);
}

TEST(Interleaved, a_tied_head_has_the_bits_of_the_plain_order_where_each_micro_batch_is_reduced) {
  for (const Layout& layout : layouts())
    if (layout.recompute.mode != Recompute::selective) check(dense(true), true, layout);
}

TEST(Interleaved, experts_and_the_loss_of_their_routers_have_the_bits_of_the_plain_order) {
  for (const Layout& layout : layouts()) {
    check(experts(), false, layout);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(Interleaved, factors_of_8_bits_have_the_bits_of_the_plain_order) {
  for (const int stage : {2, 3}) check(dense(false), false, {.ranks = 2, .stage = stage, .fp8 = Fp8Scaling::delayed});
}

TEST(Interleaved, accumulate_runs_the_list_without_its_update_and_other_lists_are_refused) {
  const Context context = Context::cpu();
  const auto self = make_self_communicator();
  Decoder decoder(dense(false));
  ShardedModel model(context, *self, decoder, {});
  model.load(InitialState(5));
  Engine engine(model);
  const std::vector<Batch> batches{batch_of(context, 1), batch_of(context, 2)};
  const double plain = engine.accumulate(batches, 2 * kLength).grad_norm;
  model.discard_gradients();
  engine.set_schedule(test::always("F0 F1 B0 B1 W0 W1 reduce update"));
  EXPECT_EQ(engine.accumulate(batches, 2 * kLength).grad_norm, plain);
  EXPECT_EQ(model.optimizer().updates(), 0);
  model.discard_gradients();
  engine.set_schedule(test::always("F0 B0 reduce update"));
  EXPECT_THROW(engine.step(batches, 2 * kLength, 1e-3, 1), Error) << "a schedule of another number of micro-batches";
  engine.set_schedule(test::always("F0 F1 B0 B1"));
  EXPECT_THROW(engine.step(batches, 2 * kLength, 1e-3, 1), Error) << "it updates nothing";
}

}  // namespace
}  // namespace nought::interleaved_test
