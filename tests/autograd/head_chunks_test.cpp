// Logits that take more than one chunk: small vocabularies never need a second one.
#include "support/gradient_check.h"
#include "support/local_store.h"
#include <gtest/gtest.h>

#include "nought/autograd/functions.h"

namespace nought {
namespace {

using test::LocalStore;

struct Result {
  double loss = 0;
  std::vector<float> dx, d_weight;
};

/// The head over tokens [0, middle) and then over the rest, or over all at once.
Result run_head(int64_t middle) {
  constexpr int64_t kTokens = 300, kHidden = 4, kVocabulary = 70000;  // 84 MB of logits, 42 MB for each half
  const Context context = Context::cpu();
  Unit unit("u");
  const ParameterView weight = unit.add("w", {kVocabulary, kHidden}, Init::zeros());
  LocalStore store(context, unit, DType::f32);
  const Tensor x = context.empty({kTokens, kHidden}, DType::f32), targets = context.empty({kTokens}, DType::i32);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.data<float>()[i] = static_cast<float>(normal_at(8, static_cast<uint64_t>(i)));
  for (int64_t i = 0; i < kTokens; ++i)
    targets.data<int32_t>()[i] = i % 7 == 0 ? -100 : static_cast<int32_t>(i * 233 % kVocabulary);
  Result result;
  for (const Interval part : {Interval{0, middle}, Interval{middle, kTokens}}) {
    if (part.empty()) continue;
    Tape tape(context);
    const Var in = tape.input(x.slice(part.begin, part.end));
    const Var loss = cross_entropy_head(tape, in, weight, targets.slice(part.begin, part.end), 0.5);
    tape.backward(loss);
    result.loss += loss.value.item();
    for (const float value : tape.gradient(in).to_vector<float>()) result.dx.push_back(value);
  }
  result.d_weight = store.flat_gradients().to_vector<float>();
  return result;
}

void expect_near(const std::vector<float>& actual, const std::vector<float>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) ASSERT_NEAR(actual[i], expected[i], 1e-6) << i;
}

TEST(HeadChunks, logits_of_several_chunks_give_the_loss_and_gradients_of_one) {
  const Result chunks = run_head(300), halves = run_head(150);
  EXPECT_NEAR(chunks.loss, halves.loss, 1e-6 * halves.loss);
  expect_near(chunks.dx, halves.dx);
  expect_near(chunks.d_weight, halves.d_weight);
}

}  // namespace
}  // namespace nought
