

#include "nought/kernels/ops/moe.h"

#include "support/kernel_test.h"
#include <gmock/gmock.h>

#include "nought/kernels/grouping.h"

namespace nought::moe_test {
namespace {

using namespace test;

struct NamedRule {
  const char* name;
  RouterRule rule;
};

const std::vector<NamedRule> kRules{
    {"mixtral", {.top_k = 2, .normalise = true}},
    {"qwen2_moe", {.top_k = 3}},
    {"deepseek_v2", {.top_k = 3, .num_groups = 4, .kept_groups = 2, .scaling = 2}},
    {"deepseek_v3",
     {.top_k = 3,
      .scores = RouterScores::sigmoid,
      .num_groups = 4,
      .kept_groups = 2,
      .group_score = GroupScore::best_two,
      .normalise = true,
      .scaling = 2.5}},
    {"gpt_oss", {.top_k = 2, .scores = RouterScores::chosen_softmax}},
    {"one sigmoid", {.top_k = 1, .scores = RouterScores::sigmoid}},
};

class MoeKernels : public KernelTest {
 protected:
  static constexpr int64_t kTokens = 40, kExperts = 8;

  Route routing(const RouterRule& rule, const Tensor& logits, const Tensor& bias = {}) {
    const int64_t tokens = logits.dim(0);
    return {rule,
            logits,
            bias,
            empty({tokens, rule.top_k}, DType::i32),
            empty({tokens, rule.top_k}, logits.dtype()),
            empty({logits.dim(1)}, DType::f64)};
  }
  Route routed_by_backend(const RouterRule& rule, const Tensor& logits, const Tensor& bias = {}) {
    const Route op = routing(rule, logits, bias);
    run(op);
    return op;
  }
  Route routed_by_reference(const RouterRule& rule, const Tensor& logits, const Tensor& bias = {}) {
    const Route op = routing(rule, logits, bias);
    reference::run(op);
    return op;
  }
  std::vector<int32_t> chosen(const RouterRule& rule, const std::vector<float>& logits,
                              const std::vector<float>& bias = {}) {
    const Tensor row = of(logits).reshape({1, static_cast<int64_t>(logits.size())});
    return routed_by_backend(rule, row, bias.empty() ? Tensor{} : of(bias)).experts.to_vector<int32_t>();
  }
  GroupByExpert grouping(const Tensor& experts, int64_t num_experts, int64_t capacity) {
    const int64_t rows = most_rows(experts.numel(), num_experts, capacity);
    return {.experts = experts,
            .counts = empty({num_experts}, DType::i32),
            .row = empty(experts.shape(), DType::i32),
            .token = empty({rows}, DType::i32),
            .pair = empty({rows}, DType::i32),
            .capacity = capacity};
  }
  /// Indices of rows in [-1, limit).
  Tensor indices(Shape shape, int64_t limit, uint64_t seed) {
    Tensor index = random_ids(*memory_, shape, limit + 1, seed);
    for (int32_t& i : index.span<int32_t>()) --i;
    return index;
  }
};

TEST_F(MoeKernels, weights_are_what_each_family_computes) {
  const std::vector<float> logits{0.5f, 2, -1, 1};
  const Tensor row = of(logits).reshape({1, 4});
  const auto e = [&](size_t i) { return std::exp(static_cast<double>(logits[i])); };
  const auto sigmoid = [&](size_t i) { return 1 / (1 + 1 / e(i)); };
  const double all = e(0) + e(1) + e(2) + e(3);
  const auto expect = [&](const RouterRule& rule, const std::vector<double>& expected) {
    const Route routed = routed_by_backend(rule, row);
    EXPECT_THAT(routed.experts.to_vector<int32_t>(), ::testing::ElementsAre(1, 3));
    for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(routed.weights.to_vector<double>()[i], expected[i], 1e-6);
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(routed.probability_sums.to_vector<double>()[i], e(i) / all, 1e-6);
  };
  expect({.top_k = 2}, {e(1) / all, e(3) / all});
  expect({.top_k = 2, .scaling = 3}, {3 * e(1) / all, 3 * e(3) / all});
  expect({.top_k = 2, .normalise = true}, {e(1) / (e(1) + e(3)), e(3) / (e(1) + e(3))});
  expect({.top_k = 2, .scores = RouterScores::chosen_softmax}, {e(1) / (e(1) + e(3)), e(3) / (e(1) + e(3))});
  expect({.top_k = 2, .scores = RouterScores::sigmoid}, {sigmoid(1), sigmoid(3)});
  const double pair = sigmoid(1) + sigmoid(3);
  expect({.top_k = 2, .scores = RouterScores::sigmoid, .normalise = true, .scaling = 2},
         {2 * sigmoid(1) / pair, 2 * sigmoid(3) / pair});
}

TEST_F(MoeKernels, of_equal_scores_the_lower_index_is_chosen) {
  EXPECT_THAT(chosen({.top_k = 3}, {1, 2, 1, 2, 1}), ::testing::ElementsAre(1, 3, 0));
}

TEST_F(MoeKernels, a_choice_bias_steers_the_choice_and_not_the_weights) {
  const RouterRule rule{.top_k = 1, .scores = RouterScores::sigmoid};
  const std::vector<float> logits{2, 1, 0};
  EXPECT_THAT(chosen(rule, logits, {0, 0, 1}), ::testing::ElementsAre(2));
  const Route routed = routed_by_backend(rule, of(logits).reshape({1, 3}), of<float>({0, 0, 1}));
  EXPECT_FLOAT_EQ(routed.weights.data<float>()[0], 0.5f);
}

TEST_F(MoeKernels, groups_are_judged_by_their_best_or_their_two_best) {
  const std::vector<float> logits{3, -3, 2, 2};  // the first group has the best expert, the second the better pair
  RouterRule rule{.top_k = 1, .scores = RouterScores::sigmoid, .num_groups = 2};
  EXPECT_THAT(chosen(rule, logits), ::testing::ElementsAre(0));
  rule.group_score = GroupScore::best_two;
  EXPECT_THAT(chosen(rule, logits), ::testing::ElementsAre(2));
}

/// Expects equal bits, but for the last ones where exponentials are a device's own.
void expect_routed(const Tensor& actual, const Tensor& expected) {
  tested_choice().is_device ? expect_close(actual, expected, 1e-6, 1e-6) : expect_same_bits(actual, expected);
}

TEST_F(MoeKernels, cpu_routes_as_the_reference_does_on_any_number_of_threads) {
  const Tensor logits = random({1000, kExperts}, DType::f32, 1, 2), bias = random({kExperts}, DType::f32, 2, 0.2);
  for (const auto& [name, rule] : kRules) {
    SCOPED_TRACE(name);
    const Route expected = routed_by_reference(rule, logits, bias);
    Route first;
    for (const int threads : {1, 2, 4}) {
      const ThreadCount guard(threads);
      const Route routed = routed_by_backend(rule, logits, bias);
      expect_same_bits(routed.experts, expected.experts);
      expect_routed(routed.weights, expected.weights);
      expect_close(routed.probability_sums, expected.probability_sums, tested_choice().is_device ? 1e-6 : 1e-12, 0);
      if (!first.probability_sums) first = routed;
      expect_same_bits(routed.probability_sums, first.probability_sums);
      const Tensor d_weights = random(expected.weights.shape(), DType::f32, 3), d = empty(logits.shape(), DType::f32),
                   d_expected = empty(logits.shape(), DType::f32);
      run(RouteBackward{rule, logits, routed.experts, d_weights, d});
      reference::run(RouteBackward{rule, logits, routed.experts, d_weights, d_expected});
      expect_routed(d, d_expected);
      if (tested_choice().is_slow) break;  // threads of the host do not compute
    }
  }
}

TEST_F(MoeKernels, routing_gradients_are_those_of_central_differences) {
  const Tensor logits = random({kTokens, kExperts}, DType::f64, 1, 2);
  const Tensor d_probabilities = random({kExperts}, DType::f64, 4);
  for (const auto& [name, named_rule] : kRules) {
    SCOPED_TRACE(name);
    const RouterRule& rule = named_rule;  // a lambda captures no structured binding in C++20's clang 14
    const Route routed = routed_by_reference(rule, logits);
    const Tensor d_weights = random(routed.weights.shape(), DType::f64, 3), d = empty(logits.shape(), DType::f64);
    reference::run(RouteBackward{rule, logits, routed.experts, d_weights, d, d_probabilities});
    const auto loss = [&] {
      const Route moved = routed_by_reference(rule, logits);
      return dot(moved.weights, d_weights) + dot(moved.probability_sums, d_probabilities);
    };
    EXPECT_LT(gradient_error(logits, d, loss, 1e-6), 1e-7);
  }
}

TEST_F(MoeKernels, the_loss_that_balances_experts_has_the_gradient_of_differences) {
  const std::vector<double> values{3, 1, 0, 4, 1.5, 0.5, 0.25, 1.75, 4, 6};  // of four tokens that choose two experts
  const auto balance = [&](const std::vector<double>& of) {
    const BalanceLoss op{.sums = Tensor::of<double>(*memory_, {10}, of),
                         .loss = empty({1}, DType::f64),
                         .gradient = empty({4}, DType::f64),
                         .weight = 2,
                         .coefficient = 0.5,
                         .gradient_scale = 3};
    run(op);
    return op;
  };
  const BalanceLoss at = balance(values);
  EXPECT_DOUBLE_EQ(at.loss.item(), 2 * 0.5 * 4 * (3 * 1.5 + 1 * 0.5 + 4 * 1.75) / 16);
  for (size_t e = 0; e < 4; ++e) {
    std::vector<double> more = values, less = values;
    more[4 + e] += 0.5, less[4 + e] -= 0.5;
    const double slope = balance(more).loss.item() - balance(less).loss.item();
    EXPECT_DOUBLE_EQ(at.gradient.data<double>()[e], slope / 2 * 6 * 3) << "of the weight of all batches, and scaled";
  }
  const BalanceLoss none = balance(std::vector<double>(10));
  EXPECT_EQ(none.loss.item(), 0);
  EXPECT_EQ(none.gradient.to_vector<double>(), std::vector<double>(4));
}

TEST_F(MoeKernels, choices_are_sorted_by_expert_then_place_then_token) {
  const Tensor experts = of<int32_t>({1, 0, 1, 2, 0, 1}).reshape({3, 2});
  const GroupByExpert op = grouping(experts, 4, /*capacity=*/0);
  run(op);
  EXPECT_THAT(op.counts.to_vector<int>(), ::testing::ElementsAre(2, 3, 1, 0));
  EXPECT_THAT(op.row.to_vector<int>(), ::testing::ElementsAre(8, 1, 9, 16, 0, 10));
  EXPECT_THAT(op.token.flat(0, 24).to_vector<int>(), ::testing::ElementsAre(2, 0, -1, -1, -1, -1, -1, -1,  //
                                                                            0, 1, 2, -1, -1, -1, -1, -1,   //
                                                                            1, -1, -1, -1, -1, -1, -1, -1));
  EXPECT_THAT(op.pair.flat(8, 11).to_vector<int>(), ::testing::ElementsAre(0, 2, 5));
  EXPECT_THAT(op.token.flat(24, op.token.numel()).to_vector<int>(), ::testing::Each(-1)) << "nothing behind the rows";
}

TEST_F(MoeKernels, an_expert_takes_the_first_choices_up_to_its_capacity) {
  const GroupByExpert op = grouping(of<int32_t>({1, 0, 1, 2, 0, 1}).reshape({3, 2}), 4, /*capacity=*/2);
  run(op);
  EXPECT_THAT(op.counts.to_vector<int>(), ::testing::ElementsAre(2, 3, 1, 0)) << "those that are left out count";
  EXPECT_THAT(op.row.to_vector<int>(), ::testing::ElementsAre(8, 1, 9, 16, 0, -1));
  EXPECT_THAT(op.pair.flat(8, 11).to_vector<int>(), ::testing::ElementsAre(0, 2, -1));
}

TEST_F(MoeKernels, grouping_has_the_bits_of_the_reference_for_any_choice) {
  for (const int64_t tokens : {0, 1, 7, 300}) {
    for (const int64_t capacity : {0, 1, 20}) {
      for (const int64_t limit : {int64_t{1}, kExperts}) {  // all choose one expert, or any
        const Tensor experts = random_ids(*memory_, {tokens, 3}, limit, static_cast<uint64_t>(tokens));
        const GroupByExpert op = grouping(experts, kExperts, capacity),
                            expected = grouping(experts, kExperts, capacity);
        run(op);
        reference::run(expected);
        expect_same_bits(op.counts, expected.counts);
        expect_same_bits(op.row, expected.row);
        expect_same_bits(op.token, expected.token);
        expect_same_bits(op.pair, expected.pair);
      }
    }
  }
}

TEST_F(MoeKernels, rows_are_gathered_and_combined_as_the_reference_does) {
  for_each_instruction_set([&] {
    for (const DType dtype : kCpuDTypes) {
      for (const int64_t n : {1, 7, 64, 129}) {
        const Tensor x = random({20, n}, dtype, 1), index = indices({kTokens, 3}, 20, 2);
        const Tensor gathered = empty({kTokens * 3, n}, dtype), expected = empty({kTokens * 3, n}, dtype);
        run(GatherRows{x, index, gathered});
        reference::run(GatherRows{x, index, expected});
        expect_same_bits(gathered, expected);

        const Tensor weights = random({kTokens, 3}, DType::f32, 3);
        for (const bool weighted : {false, true}) {
          for (const bool accumulate : {false, true}) {
            const Tensor out = random({kTokens, n}, dtype, 4), exact = wide(out);
            run(CombineRows{x, index, out, weighted ? weights : Tensor{}, accumulate});
            reference::run(CombineRows{wide(x), index, exact, weighted ? wide(weights) : Tensor{}, accumulate});
            expect_rounded(out, exact, 1e-5);
          }
        }
      }
    }
  });
}

TEST_F(MoeKernels, rows_are_scaled_and_multiplied_as_the_reference_does) {
  for_each_instruction_set([&] {
    for (const DType dtype : kCpuDTypes) {
      for (const int64_t n : {1, 7, 64, 129}) {
        const Tensor a = random({kTokens, n}, dtype, 1), b = random({kTokens, n}, dtype, 2);
        const Tensor factors = random({kTokens}, DType::f32, 3), exact = empty({kTokens, n}, DType::f64);
        for (const bool accumulate : {false, true}) {
          const Tensor out = random({kTokens}, DType::f32, 4), dots = wide(out);
          run(DotRows{a, b, out, accumulate});
          reference::run(DotRows{wide(a), wide(b), dots, accumulate});
          expect_close(out, dots, 1e-6, 1e-4);
          const Tensor column_factors = random({n}, dtype, 5);
          run(DotRows{a, b, out, accumulate, column_factors, 0.5});
          reference::run(DotRows{wide(a), wide(b), dots, accumulate, wide(column_factors), 0.5});
          expect_close(out, dots, 1e-6, 1e-4);
        }
        reference::run(ScaleRows{wide(a), wide(factors), exact});
        run(ScaleRows{a, factors, a});  // in place
        expect_rounded(a, exact, 1e-6);
      }
    }
  });
}

TEST_F(MoeKernels, clamped_swiglu_is_rounded_once) {
  for_each_instruction_set([&] {
    for (const DType dtype : kCpuDTypes) {
      for (const int64_t n : {1, 7, 257, 600}) {
        const Tensor gate_up = random({3, 2 * n}, dtype, 1, 6), dy = random({3, n}, dtype, 2);  // beyond the limit too
        const Tensor y = empty({3, n}, dtype), exact = empty({3, n}, DType::f64);
        run(ClampedSwiglu{gate_up, y});
        reference::run(ClampedSwiglu{wide(gate_up), exact});
        expect_rounded(y, exact, 1e-4);
        const Tensor d = empty({3, 2 * n}, dtype), d_exact = empty({3, 2 * n}, DType::f64);
        run(ClampedSwigluBackward{gate_up, dy, d});
        reference::run(ClampedSwigluBackward{wide(gate_up), wide(dy), d_exact});
        expect_rounded(d, d_exact, 1e-4);
      }
    }
  });
}

TEST_F(MoeKernels, clamped_swiglu_has_the_gradients_of_central_differences) {
  const Tensor gate_up = random({5, 40}, DType::f64, 1, 6), dy = random({5, 20}, DType::f64, 2);
  const Tensor y = empty({5, 20}, DType::f64), d = empty({5, 40}, DType::f64);
  reference::run(ClampedSwigluBackward{gate_up, dy, d});
  const auto loss = [&] {
    reference::run(ClampedSwiglu{gate_up, y});
    return dot(y, dy);
  };
  EXPECT_LT(gradient_error(gate_up, d, loss), 1e-7);
}

TEST_F(MoeKernels, arguments_that_do_not_fit_are_errors) {
  const Tensor logits = random({4, 6}, DType::f32, 1);
  EXPECT_THROW(routed_by_backend({.top_k = 7}, logits), ShapeError);
  EXPECT_THROW(routed_by_backend({.top_k = 2, .num_groups = 4, .kept_groups = 2}, logits), ShapeError);
  EXPECT_THROW(routed_by_backend({.top_k = 2, .num_groups = 2, .kept_groups = 3}, logits), ShapeError);
  EXPECT_THROW(routed_by_backend({.top_k = 2}, random({4, 6}, DType::bf16, 1)), ShapeError);
  const Tensor index = of<int32_t>({0, 4});
  EXPECT_THROW(run(GatherRows{logits, index, empty({2, 6}, DType::f32)}), Error);
  EXPECT_THROW(run(CombineRows{logits, index, empty({1, 6}, DType::f32)}), Error);
  EXPECT_THROW(run(ScaleRows{logits, of<float>({1, 2}), logits}), ShapeError);
  EXPECT_THROW(run(grouping(of<int32_t>({0, 4}).reshape({1, 2}), 4, 0)), Error);
  GroupByExpert narrow = grouping(of<int32_t>({0, 3}).reshape({1, 2}), 4, 0);
  narrow.token = narrow.pair = empty({8}, DType::i32);  // two experts may need 16
  EXPECT_THROW(run(narrow), ShapeError);
  EXPECT_THROW(run(ClampedSwiglu{random({2, 5}, DType::f32, 1), logits}), ShapeError);
}

}  // namespace
}  // namespace nought::moe_test
