#include "nought/autograd/attention.h"

#include "support/gradient_check.h"
#include "support/size.h"

#include "nought/autograd/functions.h"

namespace nought::attention_test {
namespace {

using test::GradientCheck;
using test::integers;
using test::random;

constexpr int64_t kTokens = 10;  // two sequences of five

RopeTables tables(const Context& context) {
  RopeTables tables{.cos = random(context, {5, 2}, 8), .sin = random(context, {5, 2}, 9), .rotary_dim = 4};
  for (int64_t i = 0; i < 10; ++i) {  // any angles and any scale, as long as they rotate
    const double angle = 0.3 * static_cast<double>(i);
    tables.cos.data<double>()[i] = 1.1 * std::cos(angle), tables.sin.data<double>()[i] = 1.1 * std::sin(angle);
  }
  return tables;
}

/// Gradients of attention(rope(norm_heads(x W^T))) by x and all parameters.
void expect_gradients(const PackedHeads& heads, bool normed, bool per_head, const AttentionOptions& options) {
  const Context context = Context::reference();
  const Tensor positions = integers(context, {0, 1, 2, 3, 4, 0, 1, 2, 3, 4});
  const RopeTables rotation = tables(context);
  Unit unit("u");
  const ParameterView weight = unit.add("w", {heads.width(), 7}, Init::zeros());
  HeadNorms norms{.eps = 1e-3, .weight_offset = 1, .per_head = per_head};
  if (normed) {
    norms.q_weight = unit.add("q", {heads.head_dim * (per_head ? 1 : heads.num_heads)}, Init::zeros());
    norms.k_weight = unit.add("k", {heads.head_dim * (per_head ? 1 : heads.num_kv_heads)}, Init::zeros());
  }
  GradientCheck(context, unit, random(context, {kTokens, 7}, 5), [&](Tape& tape, const Var& x) {
    Var qkv = linear(tape, x, weight, {}, WeightLayout::out_in);
    if (normed) qkv = norm_heads(tape, qkv, heads, norms);
    return attention(tape, rope(tape, qkv, heads, rotation, positions), heads, options);
  }).run();
}

const AttentionOptions kOptions{.batch = 2, .length = 5, .scale = 0.4};

NOUGHT_SIZE(medium);
TEST(AttentionFunctions, rope_and_attention_have_the_right_gradients) {
  for (const int64_t window : {0, 2}) {
    AttentionOptions options = kOptions;
    options.window = window;
    expect_gradients({.num_heads = 4, .num_kv_heads = 2, .head_dim = 6}, false, true, options);
  }
}

NOUGHT_SIZE(medium);
TEST(AttentionFunctions, capped_scores_and_narrow_values_have_the_right_gradients) {
  AttentionOptions options = kOptions;
  options.softcap = 0.8;
  expect_gradients({.num_heads = 4, .num_kv_heads = 2, .head_dim = 6}, false, true, options);
  expect_gradients({.num_heads = 2, .num_kv_heads = 2, .head_dim = 6, .v_head_dim = 3, .rope_offset = 2}, false, true,
                   kOptions);
}

TEST(AttentionFunctions, sinks_have_the_right_gradients) {
  const Context context = Context::reference();
  const PackedHeads heads{.num_heads = 4, .num_kv_heads = 2, .head_dim = 3};
  Unit unit("u");
  AttentionOptions options = kOptions;
  options.sinks = unit.add("sinks", {4}, Init::zeros());
  GradientCheck(context, unit, random(context, {kTokens, heads.width()}, 5), [&](Tape& tape, const Var& x) {
    return attention(tape, x, heads, options);
  }).run();
}

TEST(AttentionFunctions, packed_latent_projections_have_the_right_gradients) {
  const Context context = Context::reference();
  const PackedHeads heads{.num_heads = 3, .num_kv_heads = 3, .head_dim = 6, .v_head_dim = 5, .rope_offset = 4};
  Unit unit("u");
  const ParameterView q = unit.add("q", {18, 7}, Init::zeros()), kv = unit.add("kv", {27, 4}, Init::zeros());
  GradientCheck(context, unit, random(context, {kTokens, 7}, 5), [&](Tape& tape, const Var& x) {
    const Var latent = columns(tape, x, 0, 4), shared = columns(tape, x, 5, 7);
    return pack_latent(tape, linear(tape, x, q, {}, WeightLayout::out_in),
                       linear(tape, latent, kv, {}, WeightLayout::out_in), shared, heads);
  }).run();
}

NOUGHT_SIZE(medium);
TEST(AttentionFunctions, interleaved_projections_have_the_right_gradients) {
  expect_gradients({.num_heads = 3, .num_kv_heads = 3, .head_dim = 6, .interleaved = true}, false, true, kOptions);
  expect_gradients({.num_heads = 3, .num_kv_heads = 3, .head_dim = 6, .interleaved = true}, true, true, kOptions);
}

NOUGHT_SIZE(medium);
TEST(AttentionFunctions, scaled_queries_and_heads_without_weights_have_the_right_gradients) {
  const Context context = Context::reference();
  const PackedHeads heads{.num_heads = 4, .num_kv_heads = 2, .head_dim = 6};
  const Tensor positions = integers(context, {0, 1, 2, 3, 4, 0, 1, 2, 3, 4});
  const RopeTables factors{
      .cos = random(context, {5, 3}, 8), .sin = context.zeros({5, 3}, DType::f64), .rotary_dim = 6};
  for (int64_t i = 0; i < 15; ++i) factors.cos.data<double>()[i] = 1 + static_cast<double>(i / 3);
  Unit unit("u");
  const ParameterView weight = unit.add("w", {heads.width(), 7}, Init::zeros());
  GradientCheck(context, unit, random(context, {kTokens, 7}, 5), [&](Tape& tape, const Var& x) {
    const Var normed = norm_heads(tape, linear(tape, x, weight, {}, WeightLayout::out_in), heads, {.eps = 1e-3});
    return attention(tape, scale_queries(tape, normed, heads, factors, positions), heads, kOptions);
  }).run();
}

TEST(AttentionFunctions, norms_of_heads_and_of_whole_projections_have_the_right_gradients) {
  for (const bool per_head : {false, true})
    expect_gradients({.num_heads = 4, .num_kv_heads = 2, .head_dim = 6}, true, per_head, kOptions);
}

}  // namespace
}  // namespace nought::attention_test
