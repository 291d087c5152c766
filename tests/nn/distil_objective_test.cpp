#include "nought/nn/distil_objective.h"

#include <cmath>
#include <numeric>
#include <vector>

#include "support/gradient_check.h"
#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::distil_objective_test {
namespace {

using namespace ::testing;
using test::LocalStore;
using test::message_of;

constexpr int64_t kTokens = 6, kHidden = 3, kVocabulary = 5;
const std::vector<int32_t> kTargets{1, -100, 2, 0, -100, 4};

Tensor normal(const Context& context, Shape shape, uint64_t seed) {
  const Tensor tensor = context.empty(shape, DType::f64);
  for (int64_t i = 0; i < tensor.numel(); ++i) tensor.data<double>()[i] = normal_at(seed, static_cast<uint64_t>(i));
  return tensor;
}

/// A teacher whose states are its logits.
Batch batch_of(const Context& context) {
  Batch batch{Tensor::of<int32_t>(*context.memory, {1, kTokens}, std::vector<int32_t>(kTokens, 1)),
              Tensor::of<int32_t>(*context.memory, {1, kTokens}, kTargets)};
  batch.teacher = normal(context, {kTokens, kVocabulary}, 7);
  return batch;
}

DistilObjective objective_of(double beta, int* held = nullptr) {
  return {beta, 0.9, [held](const Context&, const std::function<void(const LogitsOfRows&)>& body) {
            if (held != nullptr) ++*held;
            body([](const Tensor& rows) { return rows; });
          }};
}

std::vector<double> softmax(const double* logits) {
  std::vector<double> result;
  for (int64_t i = 0; i < kVocabulary; ++i) result.push_back(std::exp(logits[i]));
  const double sum = std::accumulate(result.begin(), result.end(), 0.0);
  for (double& each : result) each /= sum;
  return result;
}

TEST(DistilObjective, a_head_loses_the_divergence_from_the_teacher_where_there_is_a_target) {
  const Context context = Context::reference();
  const Batch batch = batch_of(context);
  Unit unit("head");
  const ParameterView weight = unit.add("weight", {kVocabulary, kHidden}, Init::zeros());
  LocalStore store(context, unit, DType::f64);
  const Tensor states = normal(context, {kTokens, kHidden}, 3);
  const DistilObjective objective = objective_of(0);
  Tape tape(context);
  double loss = 0;
  std::vector<double> logits;
  objective.around(context, [&] {
    const Var in = tape.input(states);
    loss = loss_head(tape, in, weight, objective.rows(batch), 1).value.item();
    logits = linear(tape, in, weight, {}, WeightLayout::out_in).value.to_vector<double>();
  });
  double expected = 0;
  for (size_t token = 0; token < kTargets.size(); ++token) {
    if (kTargets[token] == kIgnoredTarget) continue;
    const auto at = static_cast<int64_t>(token) * kVocabulary;
    const std::vector<double> student = softmax(logits.data() + at),
                              teacher = softmax(batch.teacher.data<double>() + at);
    for (size_t i = 0; i < student.size(); ++i) expected += teacher[i] * std::log(teacher[i] / student[i]);
  }
  EXPECT_NEAR(loss, expected, 1e-9);
  EXPECT_EQ(objective.weight(batch), 4);
  EXPECT_EQ(objective.temperature(), 0.9);
}

TEST(DistilObjective, the_teacher_is_held_once_for_all_chunks_of_a_batch) {
  const Context context = Context::reference();
  int held = 0;
  const DistilObjective objective = objective_of(0.5, &held);
  const Batch batch = batch_of(context);
  objective.around(context, [&] {
    for (int64_t token = 0; token < kTokens; ++token)
      objective.rows(batch)(context, {.tokens = {token, token + 1},
                                      .logits = normal(context, {1, kVocabulary}, 9),
                                      .losses = context.empty({1}, DType::f64)});
  });
  EXPECT_EQ(held, 1);
}

TEST(DistilObjective, a_batch_without_the_teachers_states_is_refused) {
  const Context context = Context::reference();
  const DistilObjective objective = objective_of(0.5);
  Batch batch = batch_of(context);
  batch.teacher = batch.teacher.slice(0, kTokens - 1);
  EXPECT_THAT(message_of<ShapeError>([&] { objective.rows(batch); }), HasSubstr("6 tokens"));
  batch.teacher = {};
  EXPECT_THAT(message_of<ShapeError>([&] { objective.rows(batch); }), HasSubstr("the teacher's states"));
}

}  // namespace
}  // namespace nought::distil_objective_test
