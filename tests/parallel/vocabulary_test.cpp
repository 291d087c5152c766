// A vocabulary that ranks share gives the lookups, the losses and the gradients of whole rows.
#include "nought/parallel/vocabulary.h"

#include <cmath>
#include <map>

#include "support/gradient_check.h"
#include "support/local_store.h"
#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/parallel/conjugate.h"

namespace nought::vocabulary_test {
namespace {

constexpr int64_t kTokens = 70, kHidden = 6, kVocab = 11;  // more tokens than one block of the loss

std::vector<int32_t> targets_of(int64_t vocab) {
  std::vector<int32_t> targets;
  for (int64_t i = 0; i < kTokens; ++i) targets.push_back(i % 7 == 3 ? -100 : static_cast<int32_t>(i * 5 % vocab));
  return targets;
}

Tensor columns_of(const Context& context, const Tensor& x, Interval columns, DType dtype) {
  Tensor part = context.empty({x.dim(0), columns.size()}, dtype);
  const auto values = x.to_vector<double>();
  visit_float(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (int64_t row = 0; row < x.dim(0); ++row)
      for (int64_t i = 0; i < columns.size(); ++i)
        part.data<T>()[row * columns.size() + i] = T(values[static_cast<size_t>(row * x.dim(1) + columns.begin + i)]);
  });
  return part;
}

struct Losses {
  std::vector<double> losses, gradients;
};

/// The losses of logits [kTokens, vocab], from whole rows.
Losses whole(const Context& context, const Tensor& logits, const std::vector<int32_t>& targets, const Tensor& weights,
             DType losses_dtype) {
  Tensor own = context.empty(logits.shape(), logits.dtype());
  context.copy(logits, own);
  const Tensor losses = context.empty({kTokens}, losses_dtype);
  cross_entropy_rows(context.upload<int32_t>({kTokens}, targets), weights)(
      context, {.tokens = {0, kTokens}, .logits = own, .losses = losses, .gradient = true, .gradient_scale = 0.5});
  return {losses.to_vector<double>(), own.to_vector<double>()};
}

/// The losses from parts of the columns, by all ranks together.
Losses shared(const Context& context, const Tensor& logits, const std::vector<int32_t>& targets, const Tensor& weights,
              DType losses_dtype, const TensorRanks& ranks) {
  const Interval held = ranks.part(logits.dim(1));
  const Tensor part = columns_of(context, logits, held, logits.dtype());
  const Tensor losses = context.empty({kTokens}, losses_dtype);
  const RowLoss rows = vocabulary_cross_entropy_rows(context, targets, weights, held, ranks);
  for (const Interval tokens : {Interval{0, 3}, Interval{3, kTokens}})  // as chunks of the head come
    rows(context, {.tokens = tokens,
                   .logits = part.slice(tokens.begin, tokens.end),
                   .losses = losses.flat(tokens.begin, tokens.end),
                   .gradient = true,
                   .gradient_scale = 0.5});
  std::vector<double> sums = losses.to_vector<double>();
  all_reduce_values(ranks.group(), context, sums);
  return {sums, gather_columns(context, part, logits.dim(1), ranks).to_vector<double>()};
}

TEST(VocabularyLoss, parts_of_the_columns_give_losses_and_gradients_of_whole_rows) {
  struct Case {
    int ranks;
    DType dtype;
    bool weighted;
    double tolerance;
  };
  for (const Case& each : std::vector<Case>{{2, DType::f64, false, 1e-12},
                                            {3, DType::f32, true, 1e-6},
                                            {4, DType::f32, false, 1e-6},
                                            {2, DType::bf16, true, 4e-3}}) {
    run_ranks(each.ranks, [&](Communicator& world, const Context& context) {
      const Mesh mesh(world, {.tensor = each.ranks});
      Tensor logits = test::random(context, {kTokens, kVocab}, 3);
      for (double& value : logits.span<double>()) value = 4 * value + 20;
      logits = columns_of(context, logits, {0, kVocab}, each.dtype);
      Tensor weights;
      if (each.weighted) {
        weights = context.empty({kTokens}, DType::f32);
        for (int64_t i = 0; i < kTokens; ++i) weights.data<float>()[i] = 0.25F * static_cast<float>(i % 5);
      }
      const DType losses = each.dtype == DType::f64 ? DType::f64 : DType::f32;
      const Losses want = whole(context, logits, targets_of(kVocab), weights, losses);
      const Losses have = shared(context, logits, targets_of(kVocab), weights, losses, TensorRanks(mesh));
      for (size_t i = 0; i < want.losses.size(); ++i)
        EXPECT_NEAR(have.losses[i], want.losses[i], std::min(each.tolerance, 1e-5) * 20) << i;
      for (size_t i = 0; i < want.gradients.size(); ++i)
        EXPECT_NEAR(have.gradients[i], want.gradients[i], each.tolerance) << i;
    });
  }
}

/// Whole rows where parts belong count every logit once for each rank: the loss is off by log t.
TEST(VocabularyLoss, gathered_logits_are_off_by_the_logarithm_of_the_number_of_ranks) {
  for (const int size : {2, 4})
    run_ranks(size, [&](Communicator& world, const Context& context) {
      const Mesh mesh(world, {.tensor = size});
      const TensorRanks ranks(mesh);
      const Tensor logits = columns_of(context, test::random(context, {kTokens, kVocab}, 3), {0, kVocab}, DType::f32);
      const std::vector<int32_t> targets(kTokens, 4);
      const Losses want = whole(context, logits, targets, {}, DType::f32);
      const Tensor losses = context.empty({kTokens}, DType::f32);
      // Every rank says that it holds the whole vocabulary; its own columns are the first copy.
      vocabulary_cross_entropy_rows(context, targets, {}, {0, kVocab}, ranks)(
          context, {.tokens = {0, kTokens}, .logits = logits, .losses = losses});
      for (int64_t i = 0; i < kTokens; ++i)
        EXPECT_NEAR(losses.data<float>()[i], want.losses[static_cast<size_t>(i)] + std::log(size), 1e-5);
    });
}

TEST(VocabularyEmbedding, lookups_and_gradients_are_those_of_the_whole_table) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < kTokens; ++i) ids.push_back(static_cast<int32_t>(i * 3 % kVocab));
  for (const int size : {2, 3, 4})
    run_ranks(size, [&](Communicator& world, const Context& context) {
      const Mesh mesh(world, {.tensor = size});
      const TensorRanks ranks(mesh);
      const Interval held = ranks.part(kVocab);
      Unit unit("embedding");
      const ParameterView table = ranks.add(unit, "table", {{kVocab, kHidden}, 0}, Init::normal(1));
      test::LocalStore store(context, unit, DType::f64);
      const auto value = [](int64_t row, int64_t i) { return static_cast<double>(10 * row + i); };
      for (int64_t row = held.begin; row < held.end; ++row)
        for (int64_t i = 0; i < kHidden; ++i)
          store.flat_values().data<double>()[(row - held.begin) * kHidden + i] = value(row, i);
      Tape tape(context);
      const Var y = vocabulary_embedding(tape, held_ids(context, ids, held), table, ranks);
      std::vector<double> counts(kVocab);
      for (int64_t t = 0; t < kTokens; ++t) {
        const int64_t id = ids[static_cast<size_t>(t)];
        counts[static_cast<size_t>(id)] += 1;
        for (int64_t i = 0; i < kHidden; ++i) ASSERT_EQ(y.value.data<double>()[t * kHidden + i], value(id, i)) << t;
      }
      tape.backward(y);  // ones: a row's gradient is how often it was looked up
      for (int64_t row = held.begin; row < held.end; ++row)
        EXPECT_EQ(store.flat_gradients().data<double>()[(row - held.begin) * kHidden],
                  counts[static_cast<size_t>(row)]);
    });
}

}  // namespace
}  // namespace nought::vocabulary_test
