// An MLP in tiles of tokens is the MLP: values and gradients, and no wide activations of all tokens.
#include "nought/nn/mlp.h"

#include <cmath>

#include "support/local_store.h"
#include <gtest/gtest.h>

#include "nought/nn/norm.h"

namespace nought::mlp_test {
namespace {

constexpr int64_t kHidden = 16, kWidth = 40;

struct Case {
  int64_t tokens = 13, tiles = 1;
  bool gated = true, bias = false, x_wanted = true, trained = true;
  bool twice = false;  // what the norm gives is read by another branch too, and its gradient comes first
  Recompute recompute = Recompute::none;
};

RecomputeOptions in_tiles(int64_t tiles) {
  RecomputeOptions options;
  options.mlp_tiles = tiles;
  return options;
}

Mlp::Options options_of(const Case& of) {
  Mlp::Options options;
  options.gated = of.gated;
  options.activation = of.gated ? Activation::silu : Activation::gelu_tanh;
  options.up.in = kHidden, options.up.out = {of.gated ? 2 * kWidth : kWidth}, options.up.names = {"up"};
  options.down.in = kWidth, options.down.out = {kHidden}, options.down.names = {"down"};
  options.up.bias = options.down.bias = of.bias;
  options.up.cut = LinearCut::outputs, options.down.cut = LinearCut::inputs;
  options.recompute = in_tiles(of.tiles);
  return options;
}

struct Results {
  std::vector<float> y, dx, d_parameters;
  int64_t kept = 0, peak = 0;  // bytes of activations: after the forward pass, and at most
};

/// A Unit of a norm and an MLP, whose result has a weight of its own for each element.
Results run(const Case& of) {
  const Context context = Context::cpu();
  Unit unit("block");
  const Norm norm(unit, "norm", {.kind = NormKind::rms, .features = kHidden});
  const Mlp mlp(unit, options_of(of));
  if (!of.trained) unit.choose_trained([](const Parameter&) { return false; });
  test::LocalStore store(context, unit, DType::f32);
  const auto numbers = [&](uint64_t seed) {
    const Tensor x = context.empty({of.tokens, kHidden}, DType::f32);
    for (int64_t i = 0; i < x.numel(); ++i)
      x.data<float>()[i] = static_cast<float>(normal_at(seed, static_cast<uint64_t>(i)));
    return x;
  };
  const Tensor input = numbers(1), seed = numbers(2);
  MemoryLedger& ledger = context.memory->ledger();
  const int64_t before = ledger.current(Category::activations);
  Tape tape(context);
  const Var x = of.x_wanted ? tape.input(input) : Tape::constant(input);
  Results results;
  {
    const Var y = tape.run_unit(
        unit, x,
        [&](Tape& inner, const Var& in) {
          const Var normed = norm(inner, in), branch = mlp(inner, normed);
          return of.twice ? add(inner, branch, activate(inner, normed, Activation::silu)) : branch;
        },
        of.recompute);
    results.y = y.value.to_vector<float>();
    results.kept = ledger.current(Category::activations) - before;
    if (!y.requires_grad()) return results;
    tape.backward(y, seed);
  }
  if (of.x_wanted) results.dx = tape.gradient(x).to_vector<float>();
  results.d_parameters = store.flat_gradients().to_vector<float>();
  results.peak = ledger.peak(Category::activations) - before;
  return results;
}

void expect_same(const std::vector<float>& got, const std::vector<float>& want, const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double largest = 0, off = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(want[i])));
    off = std::max(off, std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i])));
  }
  EXPECT_LE(off, 1e-6 * largest) << what;
}

TEST(Mlp, tiles_give_the_values_and_gradients_of_all_tokens_at_once) {
  for (const auto& [tokens, tiles] : {std::pair<int64_t, int64_t>{13, 4}, {13, 13}, {13, 2}, {1, 5}, {64, 0}, {3, 7}})
    for (const bool gated : {true, false})
      for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        Case of{.tokens = tokens, .gated = gated, .bias = !gated, .recompute = recompute};
        const Results whole = run(of);
        of.tiles = tiles;
        const Results tiled = run(of);
        SCOPED_TRACE(fmt::format("{} tokens in {} tiles, {}", tokens, tiles, name_of(recompute)));
        expect_same(tiled.y, whole.y, "y");
        expect_same(tiled.dx, whole.dx, "dx");
        expect_same(tiled.d_parameters, whole.d_parameters, "gradients of parameters");
      }
}

TEST(Mlp, tiles_form_only_the_gradients_that_somebody_wants) {
  for (const bool x_wanted : {true, false})
    for (const bool trained : {true, false}) {
      Case of{.x_wanted = x_wanted, .trained = trained};
      const Results whole = run(of);
      of.tiles = 4;
      const Results tiled = run(of);
      expect_same(tiled.y, whole.y, "y");
      expect_same(tiled.dx, whole.dx, "dx");
      expect_same(tiled.d_parameters, whole.d_parameters, "gradients of parameters");
    }
}

TEST(Mlp, tiles_add_to_the_gradient_that_another_branch_has_given) {
  Case of{.twice = true};
  const Results whole = run(of);
  of.tiles = 4;
  const Results tiled = run(of);
  expect_same(tiled.dx, whole.dx, "dx");
}

/// Bytes of a token at once: the norm's result, gate and up, what the second product reads, y; in tiles the first and
/// the last alone. The backward pass needs the gradient of x besides, and the rest of one tile.
TEST(Mlp, tiles_keep_the_input_alone) {
  constexpr int64_t kTokens = 1024, kBytes = kTokens * 4;
  Case of{.tokens = kTokens};
  const Results whole = run(of);
  of.tiles = 32;
  const Results tiled = run(of);
  constexpr int64_t kStatistics = kBytes;
  EXPECT_EQ(whole.kept, kBytes * (2 * kHidden + 3 * kWidth) + kStatistics);
  EXPECT_EQ(tiled.kept, kBytes * 2 * kHidden + kStatistics);
  EXPECT_LT(tiled.peak, kBytes * 4 * kHidden + kStatistics + kBytes / 32 * (8 * kWidth + 3 * kHidden));
  EXPECT_GT(whole.peak, kBytes * 5 * kWidth);
  of.recompute = Recompute::selective;
  EXPECT_EQ(run(of).kept, kBytes * kHidden + kStatistics) << "what the norm gives is computed again";
}

TEST(Mlp, a_tile_has_as_many_tokens_as_a_token_has_elements_unless_it_is_told) {
  EXPECT_EQ(RecomputeOptions().mlp_tiles_of(1000, 16), 1);
  EXPECT_EQ(in_tiles(0).mlp_tiles_of(1000, 16), 63);
  EXPECT_EQ(in_tiles(0).mlp_tiles_of(16, 16), 1);
  EXPECT_EQ(in_tiles(5).mlp_tiles_of(1000, 16), 5);
  EXPECT_EQ(in_tiles(5).mlp_tiles_of(3, 16), 3);
  EXPECT_EQ(in_tiles(5).mlp_tiles_of(0, 16), 1);
}

}  // namespace
}  // namespace nought::mlp_test
