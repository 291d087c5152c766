#include "nought/nn/objective.h"

#include <cmath>

#include "support/gradient_check.h"
#include <gtest/gtest.h>

#include "nought/base/error.h"
#include "nought/nn/batch.h"

namespace nought::objective_test {
namespace {

using test::LocalStore;

constexpr int64_t kRows = 2, kLength = 6, kTokens = kRows * kLength, kHidden = 5, kVocabulary = 11;

Tensor integers(const Context& context, const std::vector<int32_t>& values) {
  return Tensor::of<int32_t>(*context.memory, {kRows, kLength}, values);
}

Tensor floats(const Context& context, const std::vector<float>& values) {
  return Tensor::of<float>(*context.memory, {kRows, kLength}, values);
}

const std::vector<int32_t> kTargets{0, 3, -100, 10, 7, 7, 1, -100, 2, 4, 9, 5};

Batch batch_of(const Context& context, const std::vector<int32_t>& targets, const std::vector<float>& weights = {}) {
  Batch batch{integers(context, std::vector<int32_t>(kTokens, 1)), integers(context, targets)};
  if (!weights.empty()) batch.weights = floats(context, weights);
  return batch;
}

/// What a head gives for some hidden states: the loss, and the gradients of states and weight.
struct Result {
  double loss = 0;
  std::vector<double> d_states, d_weight;
  friend bool operator==(const Result&, const Result&) = default;
};

Result run_head(const Context& context, DType dtype, const Batch& batch, const Objective& objective,
                double gradient_scale = 0.25) {
  Unit unit("head");
  const ParameterView weight = unit.add("weight", {kVocabulary, kHidden}, Init::zeros());
  LocalStore store(context, unit, dtype);
  Tensor x = context.empty({kTokens, kHidden}, dtype);
  visit_float(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (int64_t i = 0; i < x.numel(); ++i) x.data<T>()[i] = T(normal_at(5, static_cast<uint64_t>(i)));
  });
  Tape tape(context);
  const Var in = tape.input(x);
  const Var loss = loss_head(tape, in, weight, objective.rows(batch), gradient_scale);
  const double value = loss.value.item();
  tape.backward(loss);
  return {value, tape.gradient(in).to_vector<double>(), store.flat_gradients().to_vector<double>()};
}

/// As cross_entropy_head gives it, which knows of no objective and no weights.
Result run_plain(const Context& context, DType dtype, const std::vector<int32_t>& targets) {
  struct Plain final : Objective {
    RowLoss rows(const Batch& batch) const override { return cross_entropy_rows(batch.targets); }
    double weight(const Batch&) const override { return 1; }
  };
  return run_head(context, dtype, batch_of(context, targets), Plain());
}

std::vector<Context> contexts() { return {Context::reference(), Context::cpu()}; }
constexpr DType kDTypes[] = {DType::f64, DType::f32, DType::bf16};

TEST(CrossEntropyObjective, weights_of_one_and_no_weights_have_the_same_bits) {
  for (const Context& context : contexts())
    for (const DType dtype : kDTypes) {
      const Result plain = run_plain(context, dtype, kTargets);
      const CrossEntropyObjective objective;
      EXPECT_EQ(run_head(context, dtype, batch_of(context, kTargets), objective), plain) << name_of(dtype);
      const std::vector<float> ones(kTokens, 1);
      EXPECT_EQ(run_head(context, dtype, batch_of(context, kTargets, ones), objective), plain) << name_of(dtype);
    }
}

TEST(CrossEntropyObjective, a_weight_of_zero_is_an_ignored_target_to_the_bit) {
  std::vector<float> weights(kTokens, 1);
  std::vector<int32_t> masked = kTargets;
  for (const size_t i : {0u, 4u, 7u, 11u}) weights[i] = 0, masked[i] = kIgnoredTarget;
  for (const Context& context : contexts())
    for (const DType dtype : kDTypes)
      EXPECT_EQ(run_head(context, dtype, batch_of(context, kTargets, weights), CrossEntropyObjective()),
                run_plain(context, dtype, masked));
}

TEST(CrossEntropyObjective, a_weighted_batch_is_the_weighted_sum_of_its_tokens) {
  const Context context = Context::reference();
  const std::vector<float> weights{0.5f, 2, 7, -1, 0, 1, 3.5f, 1, 0.25f, 1, 0.125f, 4};
  const CrossEntropyObjective objective;
  const Result all = run_head(context, DType::f64, batch_of(context, kTargets, weights), objective);
  Result sum{0, std::vector<double>(all.d_states.size()), std::vector<double>(all.d_weight.size())};
  for (size_t token = 0; token < kTokens; ++token) {
    std::vector<int32_t> alone(kTokens, kIgnoredTarget);
    alone[token] = kTargets[token];
    const Result one = run_plain(context, DType::f64, alone);
    const double weight = double{weights[token]};
    sum.loss += weight * one.loss;
    for (size_t i = 0; i < sum.d_states.size(); ++i) sum.d_states[i] += weight * one.d_states[i];
    for (size_t i = 0; i < sum.d_weight.size(); ++i) sum.d_weight[i] += weight * one.d_weight[i];
  }
  EXPECT_NEAR(all.loss, sum.loss, 1e-12);
  for (size_t i = 0; i < sum.d_states.size(); ++i) EXPECT_NEAR(all.d_states[i], sum.d_states[i], 1e-12);
  for (size_t i = 0; i < sum.d_weight.size(); ++i) EXPECT_NEAR(all.d_weight[i], sum.d_weight[i], 1e-12);
}

TEST(CrossEntropyObjective, a_batch_counts_as_much_as_its_targets_weigh) {
  const Context context = Context::reference();
  const CrossEntropyObjective objective;
  EXPECT_EQ(objective.weight(batch_of(context, kTargets)), 10);
  EXPECT_EQ(objective.weight(batch_of(context, std::vector<int32_t>(kTokens, kIgnoredTarget))), 0);
  const std::vector<float> weights{0.5f, 2, 7, -1, 0, 1, 3.5f, 1, 0.25f, 1, 0.125f, 4};
  EXPECT_EQ(objective.weight(batch_of(context, kTargets, weights)), 11.375) << "without those of ignored targets";
}

TEST(CrossEntropyObjective, targets_and_weights_of_other_tokens_are_refused) {
  const Context context = Context::reference();
  const CrossEntropyObjective objective;
  Batch batch = batch_of(context, kTargets);
  batch.weights = Tensor::of<float>(*context.memory, {3}, std::vector<float>{1, 1, 1});
  EXPECT_THROW(objective.rows(batch), ShapeError);
  batch.weights = {};
  batch.input_ids = batch.input_ids.flat(0, 5);
  EXPECT_THROW(objective.rows(batch), ShapeError);
}

/// -log(1 - probability of the target): another loss, in f64.
class Unlikelihood final : public Objective {
 public:
  RowLoss rows(const Batch& batch) const override {
    return [targets = batch.targets](const Context&, const LogitRows& rows) {
      const int64_t n = rows.logits.dim(-1);
      for (int64_t row = 0; row < rows.logits.rows(); ++row) {
        double* logits = rows.logits.data<double>() + row * n;
        const int64_t target = targets.data<int32_t>()[rows.tokens.begin + row];
        double sum = 0;
        for (int64_t j = 0; j < n; ++j) sum += std::exp(logits[j]);
        const double p = std::exp(logits[target]) / sum;
        rows.losses.data<double>()[row] = -std::log(1 - p);
        if (!rows.gradient) continue;
        const double factor = rows.gradient_scale * p / (1 - p);
        for (int64_t j = 0; j < n; ++j) logits[j] = factor * ((j == target ? 1 : 0) - std::exp(logits[j]) / sum);
      }
    };
  }
  double weight(const Batch& batch) const override { return static_cast<double>(batch.targets.numel()); }
};

TEST(Objective, an_own_one_is_walked_back_through_the_head) {
  const Context context = Context::reference();
  Unit unit("head");
  const ParameterView weight = unit.add("weight", {kVocabulary, kHidden}, Init::zeros());
  LocalStore store(context, unit, DType::f64);
  const Batch batch = batch_of(context, {0, 3, 8, 10, 7, 7, 1, 6, 2, 4, 9, 5});
  const Unlikelihood objective;
  const Tensor x = test::random(context, {kTokens, kHidden}, 6);
  Tape tape(context);
  const Var in = tape.input(x);
  tape.backward(loss_head(tape, in, weight, objective.rows(batch), 0.5));
  const auto loss = [&] {
    Tape forward(context, false);
    return 0.5 * loss_head(forward, Tape::constant(x), weight, objective.rows(batch), 1).value.item();
  };
  const auto check = [&](const Tensor& at, const Tensor& gradient) {
    const std::vector<double> numeric = test::numeric_gradient(at, loss);
    for (size_t i = 0; i < numeric.size(); ++i) EXPECT_NEAR(gradient.data<double>()[i], numeric[i], 1e-7) << i;
  };
  check(x, tape.gradient(in));
  check(store.flat_values(), store.flat_gradients());
}

}  // namespace
}  // namespace nought::objective_test
