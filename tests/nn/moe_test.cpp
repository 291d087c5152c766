#include "nought/nn/moe.h"

#include <cmath>
#include <functional>
#include <map>

#include "support/balance.h"
#include "support/gradient_check.h"
#include "support/size.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/comm/thread.h"

namespace nought::moe_test {
namespace {

using test::LocalStore;
using Vector = std::vector<double>;

constexpr int64_t kHidden = 6, kWidth = 4, kExperts = 8, kTokens = 12;

Tensor random(const Context& context, Shape shape, uint64_t seed) {
  Tensor x = context.empty(shape, DType::f64);
  for (int64_t i = 0; i < x.numel(); ++i) x.data<double>()[i] = normal_at(seed, static_cast<uint64_t>(i));
  return x;
}

Moe::Options basic(const RouterRule& rule) {
  Moe::Options options;
  options.hidden = kHidden, options.intermediate = kWidth, options.num_experts = kExperts;
  options.rule = rule;
  options.router = "gate", options.experts = "experts";
  return options;
}

Moe::Options with_shared(Moe::Options options, bool gated) {
  const auto linear = [](int64_t in, std::vector<int64_t> out, std::vector<std::string> names) {
    Linear::Options linear;
    linear.in = in, linear.out = std::move(out), linear.names = std::move(names);
    return linear;
  };
  Mlp::Options shared;
  shared.up = linear(kHidden, {5, 5}, {"shared.gate_proj", "shared.up_proj"});
  shared.down = linear(5, {kHidden}, {"shared.down_proj"});
  options.shared = shared;
  if (gated) options.shared_gate = "shared_gate";
  return options;
}

Moe::Options fused(Moe::Options options) {
  options.rule.scores = RouterScores::chosen_softmax;
  options.storage = ExpertStorage::fused;
  options.router_bias = true;
  options.activation.clamped = true;
  options.activation.limit = 0.4;  // so that many values are clamped
  return options;
}

/// A mixture of experts on one rank in f64, or in another dtype.
struct Layer {
  explicit Layer(const Moe::Options& options, Context c = Context::reference(), DType dtype = DType::f64)
      : context(std::move(c)), moe(unit, options), store(context, unit, dtype) {}

  Tensor forward(const Tensor& x) {
    Tape tape(context, false);
    return moe(tape, Tape::constant(x), nullptr, 0).value;
  }
  /// Row-major values of a parameter.
  Vector parameter(const std::string& name, bool gradient = false) const {
    for (const Parameter& p : unit.parameters())
      if (p.name == name) return (gradient ? store.gradient_of(unit, p) : store.values_of(unit, p)).to_vector<double>();
    ADD_FAILURE() << "no parameter " << name;
    return {};
  }

  Context context;
  Unit unit{"block"};
  Moe moe;
  LocalStore store;
};

/// y = W x. W: [out, in]
Vector multiply(const Vector& w, const Vector& x) {
  Vector y(w.size() / x.size());
  for (size_t i = 0; i < y.size(); ++i)
    for (size_t j = 0; j < x.size(); ++j) y[i] += w[i * x.size() + j] * x[j];
  return y;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// down(silu(gate(x)) * up(x)) by plain loops.
Vector plain_mlp(const Layer& layer, const std::string& prefix, const Vector& x) {
  const Vector gate = multiply(layer.parameter(prefix + ".gate_proj.weight"), x);
  Vector up = multiply(layer.parameter(prefix + ".up_proj.weight"), x);
  for (size_t i = 0; i < up.size(); ++i) up[i] *= gate[i] * sigmoid(gate[i]);
  return multiply(layer.parameter(prefix + ".down_proj.weight"), up);
}

TEST(Moe, equals_a_loop_over_tokens_and_experts) {
  Layer layer(with_shared(basic({.top_k = 3, .normalise = true, .scaling = 1.5}), /*gated=*/true));
  const Tensor x = random(layer.context, {kTokens, kHidden}, 1);
  const Vector actual = layer.forward(x).to_vector<double>(), inputs = x.to_vector<double>();
  for (size_t t = 0; t < kTokens; ++t) {
    const Vector token(inputs.begin() + static_cast<long>(t * kHidden),
                       inputs.begin() + static_cast<long>((t + 1) * kHidden));
    std::multimap<double, size_t, std::greater<>> ranked;  // e^logit -> expert
    const Vector logits = multiply(layer.parameter("gate.weight"), token);
    for (size_t e = 0; e < kExperts; ++e) ranked.emplace(std::exp(logits[e]), e);
    Vector expected = plain_mlp(layer, "shared", token);
    for (double& value : expected) value *= sigmoid(multiply(layer.parameter("shared_gate.weight"), token)[0]);
    const auto last = std::next(ranked.begin(), 3);
    double total = 0;
    for (auto it = ranked.begin(); it != last; ++it) total += it->first;
    for (auto it = ranked.begin(); it != last; ++it) {
      const Vector out = plain_mlp(layer, fmt::format("experts.{}", it->second), token);
      for (size_t j = 0; j < kHidden; ++j) expected[j] += 1.5 * it->first / total * out[j];
    }
    for (size_t j = 0; j < kHidden; ++j) EXPECT_NEAR(actual[t * kHidden + j], expected[j], 1e-12);
  }
}

TEST(Moe, fused_experts_equal_a_loop_over_tokens_and_experts) {
  Layer layer(fused(basic({.top_k = 2})));
  const Tensor x = random(layer.context, {kTokens, kHidden}, 1);
  const Vector actual = layer.forward(x).to_vector<double>(), inputs = x.to_vector<double>();
  const Vector router_bias = layer.parameter("gate.bias");
  const Vector gate_up = layer.parameter("experts.gate_up_proj"), down = layer.parameter("experts.down_proj");
  const Vector gate_up_bias = layer.parameter("experts.gate_up_proj_bias");
  const Vector down_bias = layer.parameter("experts.down_proj_bias");
  const auto expert = [&](size_t e, const double* token, size_t j) {
    double out = down_bias[e * kHidden + j];
    for (size_t f = 0; f < kWidth; ++f) {
      double pair[2];
      for (size_t side = 0; side < 2; ++side) {
        pair[side] = gate_up_bias[e * 2 * kWidth + 2 * f + side];
        for (size_t i = 0; i < kHidden; ++i)
          pair[side] += token[i] * gate_up[(e * kHidden + i) * 2 * kWidth + 2 * f + side];
      }
      const double gate = std::min(pair[0], 0.4), up = std::clamp(pair[1], -0.4, 0.4);
      out += (up + 1) * gate * sigmoid(1.702 * gate) * down[(e * kWidth + f) * kHidden + j];
    }
    return out;
  };
  for (size_t t = 0; t < kTokens; ++t) {
    const double* token = inputs.data() + t * kHidden;
    std::multimap<double, size_t, std::greater<>> ranked;
    const Vector logits = multiply(layer.parameter("gate.weight"), {token, token + kHidden});
    for (size_t e = 0; e < kExperts; ++e) ranked.emplace(std::exp(logits[e] + router_bias[e]), e);
    const auto& [first, a] = *ranked.begin();
    const auto& [second, b] = *std::next(ranked.begin());
    for (size_t j = 0; j < kHidden; ++j)
      EXPECT_NEAR(actual[t * kHidden + j],
                  (first * expert(a, token, j) + second * expert(b, token, j)) / (first + second), 1e-12);
  }
}

/// The gradients of sum(seed * y) + coefficient * aux, by x and all parameters, against central differences.
void expect_right_gradients(const Moe::Options& options, double auxiliary = 0) {
  Layer layer(options);
  const Context& context = layer.context;
  const Tensor x = random(context, {kTokens, kHidden}, 1), seed = random(context, x.shape(), 2);
  const auto log = std::make_shared<RouterLog>(1);
  Tape tape(context);
  const Var in = tape.input(x), out = layer.moe(tape, in, log, 0);
  if (auxiliary != 0) {
    const Tensor gradient = test::balance_of(context, *log).gradient;
    context.run(Scale{.x = gradient, .factor = auxiliary});
    log->set_probability_gradient(gradient);
  }
  Tensor given = context.empty(seed.shape(), DType::f64);
  context.copy(seed, given);
  tape.backward(out, given);
  const auto loss = [&] {
    Tape forward(context, false);
    const auto other = std::make_shared<RouterLog>(1);
    const Tensor y = layer.moe(forward, Tape::constant(x), other, 0).value;
    double sum = auxiliary * test::balance_of(context, *other).loss.item();
    for (int64_t i = 0; i < y.numel(); ++i) sum += y.data<double>()[i] * seed.data<double>()[i];
    return sum;
  };
  const auto compare = [&](const Tensor& at, const Tensor& gradient, const char* what) {
    const std::vector<double> numeric = test::numeric_gradient(at, loss, 1e-6);
    for (size_t i = 0; i < numeric.size(); ++i)
      ASSERT_NEAR(gradient.data<double>()[i], numeric[i], 1e-6 * std::max(1.0, std::abs(numeric[i])))
          << what << " " << i;
  };
  compare(x, tape.gradient(in), "x");
  compare(layer.store.flat_values(), layer.store.flat_gradients(), "parameters");
}

NOUGHT_SIZE(medium);  // 20 seconds of the sanitizers
TEST(Moe, has_the_gradients_of_central_differences) {
  expect_right_gradients(basic({.top_k = 2, .normalise = true}));
  expect_right_gradients(with_shared(basic({.top_k = 3}), /*gated=*/true));
  expect_right_gradients(with_shared(basic({.top_k = 3, .num_groups = 4, .kept_groups = 2, .scaling = 2}), false));
  expect_right_gradients(fused(basic({.top_k = 2})));
}

TEST(Moe, passes_the_gradient_of_the_auxiliary_loss) {
  expect_right_gradients(basic({.top_k = 2, .normalise = true}), 0.7);
  expect_right_gradients(basic({.top_k = 3}), 0.7);
}

TEST(Moe, has_the_right_gradients_when_tokens_are_dropped) {
  Moe::Options options = basic({.top_k = 2});
  options.drop_tokens = true;
  options.capacity_factor = 0.5;
  expect_right_gradients(options);
}

TEST(Moe, a_choice_bias_steers_and_is_never_trained) {
  Moe::Options options = basic({.top_k = 1, .scores = RouterScores::sigmoid});
  options.choice_bias = "gate.e_score_correction_bias";
  Layer layer(options);
  const Parameter& bias = *std::find_if(layer.unit.parameters().begin(), layer.unit.parameters().end(),
                                        [&](const Parameter& p) { return p.name == options.choice_bias; });
  EXPECT_FALSE(bias.decay || bias.trainable);
  layer.unit.attach(nullptr, 0);
  layer.unit.choose_trained([](const Parameter&) { return true; });
  EXPECT_FALSE(bias.trainable) << "whatever is asked for";
  layer.unit.attach(&layer.store, 0);
  const Tensor values = layer.store.values_of(layer.unit, bias);
  layer.context.zero(values);
  values.data<double>()[5] = 10;
  const Tensor gradient = layer.store.gradient_of(layer.unit, bias);
  std::fill_n(gradient.data<double>(), kExperts, 99.0);
  const auto log = std::make_shared<RouterLog>(1);
  Tape tape(layer.context);
  tape.backward(layer.moe(tape, tape.input(random(layer.context, {kTokens, kHidden}, 1)), log, 0));
  EXPECT_THAT(log->layers()[0].load, ::testing::ElementsAre(0, 0, 0, 0, 0, kTokens, 0, 0));
  EXPECT_THAT(gradient.to_vector<double>(), ::testing::Each(99.0)) << "nobody writes one";
}

TEST(Moe, an_expert_that_no_token_chose_gets_the_gradient_zero) {
  for (const bool is_fused : {false, true}) {
    Layer layer(is_fused ? fused(basic({.top_k = 2})) : basic({.top_k = 2}));
    const Tensor gradients = layer.store.flat_gradients();
    for (const Parameter& parameter : layer.unit.parameters())
      for (double& value : layer.store.gradient_of(layer.unit, parameter).span<double>()) value = 99;
    const auto log = std::make_shared<RouterLog>(1);
    Tape tape(layer.context);
    tape.backward(layer.moe(tape, tape.input(random(layer.context, {1, kHidden}, 1)), log, 0));
    for (size_t e = 0; e < kExperts; ++e) {
      const bool chosen = log->layers()[0].load[e] > 0;
      Vector of_expert;
      if (is_fused) {
        const Vector all = layer.parameter("experts.down_proj", /*gradient=*/true);
        of_expert.assign(all.begin() + static_cast<long>(e * kWidth * kHidden),
                         all.begin() + static_cast<long>((e + 1) * kWidth * kHidden));
      } else {
        of_expert = layer.parameter(fmt::format("experts.{}.up_proj.weight", e), /*gradient=*/true);
      }
      EXPECT_EQ(std::all_of(of_expert.begin(), of_expert.end(), [](double g) { return g == 0; }), !chosen) << e;
    }
    EXPECT_THAT(gradients.to_vector<double>(), ::testing::Not(::testing::Contains(99.0)));
  }
}

TEST(Moe, tokens_beyond_the_capacity_skip_the_expert_and_are_counted) {
  Moe::Options options = basic({.top_k = 1, .normalise = true});
  options.drop_tokens = true;
  options.capacity_factor = 1;  // 16 tokens for 8 experts: two each
  Layer layer(options);
  const Tensor one = random(layer.context, {1, kHidden}, 1), x = layer.context.empty({16, kHidden}, DType::f64);
  for (int64_t t = 0; t < 16; ++t) layer.context.copy(one.flat(0, kHidden), x.flat(t * kHidden, (t + 1) * kHidden));
  const auto log = std::make_shared<RouterLog>(1);
  Tape tape(layer.context, false);
  const Vector y = layer.moe(tape, Tape::constant(x), log, 0).value.to_vector<double>();
  EXPECT_EQ(log->layers()[0].dropped, 14);
  EXPECT_EQ(*std::max_element(log->layers()[0].load.begin(), log->layers()[0].load.end()), 16);
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i] != 0, i < 2 * kHidden) << i;  // the first two are served
}

TEST(Moe, cpu_kernels_agree_with_the_reference_in_every_dtype) {
  for (const Moe::Options& options : {with_shared(basic({.top_k = 3}), true), fused(basic({.top_k = 2}))}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Layer ours(options, Context::cpu(), dtype), oracle(options);
      oracle.context.run(Cast{.x = ours.store.flat_values(), .y = oracle.store.flat_values()});  // the rounded weights
      const auto run = [](Layer& layer, DType type) {
        Tensor x = layer.context.empty({50, kHidden}, type), seed = layer.context.empty({50, kHidden}, type);
        for (const auto& [tensor, salt] : {std::pair{x, 1}, {seed, 2}}) {
          const Tensor bf16 = layer.context.empty(x.shape(), DType::bf16);
          layer.context.run(Cast{.x = random(layer.context, x.shape(), static_cast<uint64_t>(salt)), .y = bf16});
          layer.context.run(Cast{.x = bf16, .y = tensor});
        }
        Tape tape(layer.context);
        const Var in = tape.input(x), out = layer.moe(tape, in, nullptr, 0);
        tape.backward(out, seed);
        Vector all = out.value.to_vector<double>();
        for (const Tensor& gradient : {tape.gradient(in), layer.store.flat_gradients()})
          for (const double g : gradient.to_vector<double>()) all.push_back(g);
        return all;
      };
      const Vector actual = run(ours, dtype), expected = run(oracle, DType::f64);
      ASSERT_EQ(actual.size(), expected.size());
      double error = 0, norm = 0;
      for (size_t i = 0; i < actual.size(); ++i) {
        error += (actual[i] - expected[i]) * (actual[i] - expected[i]);
        norm += expected[i] * expected[i];
      }
      EXPECT_LT(std::sqrt(error / norm), dtype == DType::f32 ? 1e-6 : 2e-2);
    }
  }
}

TEST(Moe, tokens_are_grouped_by_expert_in_a_fixed_order) {
  const Context context = Context::reference();
  const std::vector<int32_t> chosen{1, 0, 1, 2, 0, 1};  // [3, 2]
  const Tensor experts = Tensor::of<int32_t>(*context.memory, {3, 2}, chosen);
  const ExpertRows rows = group_by_expert(context, experts, 4, 0);
  EXPECT_EQ(rows.dropped, 0);
  const auto tokens_of = [&](size_t e) {
    std::vector<int32_t> tokens;
    for (int64_t r = rows.blocks[e].begin; r < rows.blocks[e].end; ++r)
      if (rows.token.data<int32_t>()[r] >= 0) tokens.push_back(rows.token.data<int32_t>()[r]);
    return tokens;
  };
  EXPECT_THAT(tokens_of(0), ::testing::ElementsAre(2, 0));  // token 2 by its first choice, token 0 by its second
  EXPECT_THAT(tokens_of(1), ::testing::ElementsAre(0, 1, 2));
  EXPECT_THAT(tokens_of(2), ::testing::ElementsAre(1));
  EXPECT_TRUE(tokens_of(3).empty() && rows.blocks[3].empty());
  for (int64_t pair = 0; pair < 6; ++pair) EXPECT_EQ(rows.pair.data<int32_t>()[rows.row.data<int32_t>()[pair]], pair);
}

RouterLog::Layer logged(const Context& context, std::vector<int64_t> load, const Vector& probabilities,
                        int64_t tokens) {
  const auto experts = static_cast<int64_t>(load.size());
  return {std::move(load), context.upload<double>({experts}, probabilities), tokens};
}

TEST(RouterLogTest, balanced_routing_has_the_auxiliary_loss_top_k) {
  run_ranks(2, [](Communicator& ranks, const Context& context) {
    RouterLog log(2);
    for (int64_t i = 0; i < 2; ++i) log.layer(i) = logged(context, {6, 6, 6, 6}, {3, 3, 3, 3}, 12);
    const BalanceLoss balanced = test::balance_of(context, log, 10, ranks);
    EXPECT_DOUBLE_EQ(balanced.loss.item(), 2);
    EXPECT_THAT(balanced.sums.to_vector<double>(), ::testing::ElementsAre(24, 24, 24, 24, 12, 12, 12, 12, 48, 20));
    log.layer(0) = logged(context, {24, 0, 0, 0}, {12, 0, 0, 0}, 12);
    EXPECT_GT(test::balance_of(context, log, 10, ranks).loss.item(), 2);
  });
}

/// The loss of a rank, and the gradient of a probability of each expert, where rank 0 has all targets.
struct Balanced {
  double loss = 0;
  Tensor gradient;
};

Balanced balance_with(const Context& context, Communicator& ranks, bool placeholder, double targets = 5) {
  const bool first = ranks.rank() == 0;
  const auto log = std::make_shared<RouterLog>(1, /*counts=*/first || !placeholder);
  log->layer(0) = first ? logged(context, {1, 1}, {1, 1}, 1) : logged(context, {2, 0}, {2, 0}, 1);
  Tape tape(context);
  const Var loss = tape.input(context.zeros({1}, DType::f64));
  const Var sum = add_auxiliary_loss(tape, loss, log, /*weight=*/first ? targets : 0, /*coefficient=*/0.5,
                                     /*gradient_scale=*/3, ranks);
  const double value = sum.value.item();
  tape.backward(sum);
  return {value, log->probability_gradient()};
}

/// One rank that reads all of them counts those tokens, too.
TEST(RouterLogTest, tokens_of_a_batch_without_targets_count_in_the_auxiliary_loss) {
  run_ranks(2, [](Communicator& ranks, const Context& context) {
    const Balanced balanced = balance_with(context, ranks, /*placeholder=*/false);
    EXPECT_EQ(balanced.loss, ranks.rank() == 0 ? 5 * 0.5 * (2.0 * (3 * 3 + 1 * 1) / (2 * 2)) : 0);
    ASSERT_TRUE(balanced.gradient);
    EXPECT_THAT(balanced.gradient.to_vector<double>(),
                ::testing::ElementsAre(5 * 0.5 * 3 * 2 * 3 / 4.0, 5 * 0.5 * 3 * 2 * 1 / 4.0));
  });
}

TEST(RouterLogTest, where_no_rank_has_a_target_the_auxiliary_loss_has_the_weight_0) {
  run_ranks(2, [](Communicator& ranks, const Context& context) {
    const Balanced balanced = balance_with(context, ranks, /*placeholder=*/false, /*targets=*/0);
    EXPECT_EQ(balanced.loss, 0);
    EXPECT_THAT(balanced.gradient.to_vector<double>(), ::testing::Each(0));
  });
}

TEST(RouterLogTest, tokens_of_a_placeholder_do_not) {
  run_ranks(2, [](Communicator& ranks, const Context& context) {
    const bool first = ranks.rank() == 0;
    const Balanced balanced = balance_with(context, ranks, /*placeholder=*/true);
    EXPECT_EQ(balanced.loss, first ? 5 * 0.5 * (2 * (1 * 1 + 1 * 1)) : 0) << "of rank 0's tokens alone";
    ASSERT_EQ(balanced.gradient.defined(), first);
    if (!first) return;
    EXPECT_THAT(balanced.gradient.to_vector<double>(), ::testing::Each(5 * 0.5 * 3 * 2 * 1));
  });
}

}  // namespace
}  // namespace nought::moe_test
