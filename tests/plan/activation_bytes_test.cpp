// The bytes of activations that one layer keeps for its backward pass, as the ledger counts them: table 2 of arXiv
// 2205.05198, for what Nought keeps. It has no dropout, and its attention keeps the logarithms of the softmax's sums
// and never the scores.
//
// Elements of each token, with hidden size h, width of all keys h_kv, width of the MLP f, and a heads:
//   what each of t ranks has whole without sequence parallelism, and 1/t of with it:
//     4 h            what the two norms read and give;  2 h with selective recompute, which forms what they give again
//     2 or 4         in fp32, the statistics of two RMS norms or layer norms
//   what each rank has 1/t of:
//     h + 2 h_kv     queries, keys and values
//     h              what attention gives
//     2 f or 3 f     what the MLP's activation reads and gives, plain or gated;  less f with selective recompute
//     a              in fp32, the logarithms
// With full recompute it is h alone, what the layer reads.
//
// In 16 bits, with f = 4 h and h_kv = h, and without the fp32 numbers, that is (8 + 24 / t) h bytes, or 32 h / t with
// sequence parallelism: the paper's 10 + 24 / t and 34 / t without two masks of dropout.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/data/sampler.h"
#include "nought/models/decoder.h"
#include "nought/plan/dry_run.h"
#include "nought/zero/micro_batch.h"

namespace nought::activation_bytes_test {
namespace {

constexpr int64_t kRows = 2, kLength = 128, kTokens = kRows * kLength;
constexpr int64_t kHidden = 512, kHeads = 8;

struct Family {
  std::string name;
  bool gated;
  int64_t kv_width, mlp_width, statistics;

  ModelConfig config(int64_t layers) const {
    if (name == "gpt2")
      return ModelConfig::from_json({{"model_type", "gpt2"},
                                     {"vocab_size", 1024},
                                     {"n_embd", kHidden},
                                     {"n_layer", layers},
                                     {"n_head", kHeads},
                                     {"n_positions", kLength}});
    return ModelConfig::from_json({{"model_type", "llama"},
                                   {"vocab_size", 1024},
                                   {"hidden_size", kHidden},
                                   {"intermediate_size", mlp_width},
                                   {"num_hidden_layers", layers},
                                   {"num_attention_heads", kHeads},
                                   {"num_key_value_heads", kv_width * kHeads / kHidden},
                                   {"max_position_embeddings", kLength}});
  }
};
const Family kGpt2{"gpt2", false, kHidden, 4 * kHidden, 4}, kLlama{"llama", true, kHidden / 2, 1408, 2};

struct Case {
  int ranks = 1;
  bool slices = false;
  Recompute recompute = Recompute::none;
  bool deferred = false;  // it has walked back, and the products of weight gradients are to come
};

int64_t kept_by(const ModelConfig& config, const Case& of) {
  CountedWork work;
  const Context context{Memory::create_virtual(), make_counting_kernels(work)};
  const auto silent = [&](int size) { return make_silent_communicator(context, 0, size, Wire::threads); };
  const std::unique_ptr<Communicator> ranks = silent(of.ranks);
  const Mesh mesh(*ranks, {.tensor = of.ranks, .expert_tensor = of.ranks},
                  [&](const std::vector<int>& group) { return silent(static_cast<int>(group.size())); });
  Decoder decoder(config, of.recompute, {}, ModelRanks(mesh, of.slices));
  ShardedModel model(context, mesh, decoder, {.dtype = DType::bf16, .gradient_dtype = DType::bf16});
  const Batch batch = empty_batch(kRows, kLength, *context.memory);
  MicroBatch micro_batch(model, batch, {.deferred = of.deferred});
  micro_batch.forward();
  if (of.deferred) micro_batch.backward();
  const int64_t kept = context.memory->ledger().current(Category::activations);
  if (of.deferred) micro_batch.form_weight_gradients();
  return kept;
}

/// What a model keeps for one layer more.
int64_t kept_by_a_layer(const Family& family, const Case& of) {
  return kept_by(family.config(3), of) - kept_by(family.config(2), of);
}

TEST(ActivationBytes, of_a_layer_are_the_formula_of_each_number_of_ranks) {
  for (const Family& family : {kGpt2, kLlama})
    for (const int t : {1, 2, 4})
      for (const bool slices : {false, true})
        for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
          SCOPED_TRACE(fmt::format("{}, {} ranks, slices {}, {}", family.name, t, slices, name_of(recompute)));
          const bool selective = recompute == Recompute::selective;
          const int64_t between = slices ? t : 1;  // ranks that share what lies between the cut products
          const int64_t mlp = (family.gated ? 3 : 2) - (selective ? 1 : 0);
          int64_t bytes =
              2 * (selective ? 2 : 4) * kHidden / between + 4 * family.statistics * kTokens / between / kTokens;
          bytes += (2 * (2 * kHidden + 2 * family.kv_width + mlp * family.mlp_width) + 4 * kHeads) / t;
          if (recompute == Recompute::full) bytes = 2 * kHidden / between;
          EXPECT_EQ(kept_by_a_layer(family, {t, slices, recompute}), bytes * kTokens);
        }
}

TEST(ActivationBytes, of_sixteen_bits_fall_as_in_the_paper) {
  const auto per_token = [](int t, bool slices) {
    const int64_t statistics = 4 * (4 * kTokens / (slices ? t : 1) + kHeads * kTokens / t);
    return static_cast<double>(kept_by_a_layer(kGpt2, {t, slices}) - statistics) / (kTokens * kHidden);
  };
  for (const int t : {1, 2, 4}) {
    EXPECT_EQ(per_token(t, false), 10 + 24.0 / t - 2);
    EXPECT_EQ(per_token(t, true), (34.0 - 2) / t);
  }
}

/// A product that waits keeps its gradient and, where ranks have slices, this rank's slice of what entered it.
TEST(ActivationBytes, of_deferred_products_are_slices_of_what_entered_them) {
  for (const Family& family : {kGpt2, kLlama})
    for (const int t : {2, 4})
      for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        SCOPED_TRACE(fmt::format("{}, {} ranks, {}", family.name, t, name_of(recompute)));
        const int64_t h = kHidden, f = family.mlp_width, up = family.gated ? 2 * f : f;
        const int64_t entered = 2 * h + h + f, gradients = h + 2 * family.kv_width + up;
        EXPECT_EQ(kept_by_a_layer(family, {t, true, recompute, /*deferred=*/true}),
                  2 * kTokens * ((entered + gradients) / t + 2 * h));
      }
}

}  // namespace
}  // namespace nought::activation_bytes_test
