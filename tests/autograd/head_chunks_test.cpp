// Logits that take more than one chunk: small vocabularies never need a second one.
#include "support/gradient_check.h"
#include "support/local_store.h"
#include "support/size.h"
#include <gtest/gtest.h>

#include "nought/autograd/functions.h"

namespace nought::head_chunks_test {
namespace {

using test::LocalStore;

struct Result {
  double loss = 0;
  std::vector<float> dx, d_weight;
};

constexpr int64_t kTokens = 300, kHidden = 4, kVocabulary = 70000;  // 84 MB of logits, 42 MB for half of the tokens

/// The head over some of the tokens, with fresh gradients.
Result run_head(Interval part) {
  const Context context = Context::cpu();
  Unit unit("u");
  const ParameterView weight = unit.add("w", {kVocabulary, kHidden}, Init::zeros());
  const LocalStore store(context, unit, DType::f32);
  const Tensor x = context.empty({part.size(), kHidden}, DType::f32);
  const Tensor targets = context.empty({part.size()}, DType::i32);
  for (int64_t i = part.begin; i < part.end; ++i) {
    targets.data<int32_t>()[i - part.begin] = i % 7 == 0 ? -100 : static_cast<int32_t>(i * 233 % kVocabulary);
    for (int64_t j = 0; j < kHidden; ++j)
      x.data<float>()[(i - part.begin) * kHidden + j] =
          static_cast<float>(normal_at(8, static_cast<uint64_t>(i * kHidden + j)));
  }
  Tape tape(context);
  const Var in = tape.input(x);
  const Var loss = cross_entropy_head(tape, in, weight, targets, 0.5);
  tape.backward(loss);
  return {loss.value.item(), tape.gradient(in).to_vector<float>(), store.flat_gradients().to_vector<float>()};
}

void expect_near(const std::vector<float>& actual, const std::vector<float>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) ASSERT_NEAR(actual[i], expected[i], 1e-6) << i;
}

NOUGHT_SIZE(medium);
TEST(HeadChunks, logits_of_several_chunks_give_the_loss_and_gradients_of_one) {
  const Result whole = run_head({0, kTokens});
  Result halves = run_head({0, kTokens / 2});
  const Result second = run_head({kTokens / 2, kTokens});
  halves.loss += second.loss;
  halves.dx.insert(halves.dx.end(), second.dx.begin(), second.dx.end());
  for (size_t i = 0; i < halves.d_weight.size(); ++i) halves.d_weight[i] += second.d_weight[i];
  EXPECT_NEAR(whole.loss, halves.loss, 1e-6 * halves.loss);
  expect_near(whole.dx, halves.dx);
  expect_near(whole.d_weight, halves.d_weight);
}

}  // namespace
}  // namespace nought::head_chunks_test
