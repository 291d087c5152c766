// What ranks that share matrices do beside a run: parts of unequal sizes, and slices of the tokens between products, in
// which ranks compute, to the bit, what ranks that have all tokens do.
#include <algorithm>

#include "support/training_case.h"
#include <gtest/gtest.h>

namespace nought::tensor_parallel_test {
namespace {

using test::expect_same_bits;
using test::TrainingCase;
using test::TrainingRank;
using test::WholeTensors;

class TensorParallel : public ::testing::TestWithParam<const char*> {
 protected:
  static TrainingCase on(int tensor, bool slices, int shard = 1) {
    TrainingCase each{.model = test::small_model(GetParam()),
                      .mesh = {.sizes = {.shard = shard, .tensor = tensor}, .sequence_parallel = slices},
                      .rows = {.of_step = 4, .length = 12},
                      .accumulation = 1};
    each.mesh.stage = shard > 1 ? 3 : 0;
    each.model.initializer_range = 0.02;
    return each;
  }
};

TEST_P(TensorParallel, recomputation_and_overlap_change_no_bit) {
  for (const bool slices : {false, true}) {
    TrainingCase each = on(2, slices, 2);
    const WholeTensors plain = each.gradients();
    each.settings.overlap = false;
    expect_same_bits(each.gradients(), plain);
    each.settings.overlap = true;
    for (const Recompute mode : {Recompute::full, Recompute::selective}) {
      each.recompute = mode;
      SCOPED_TRACE(each.str());
      expect_same_bits(each.gradients(), plain);
    }
  }
}

TEST_P(TensorParallel, parts_of_unequal_sizes_give_the_gradients_of_one_rank) {
  const WholeTensors alone = on(1, false).gradients();
  for (const int shard : {1, 2})
    for (const bool slices : {false, true}) {
      SCOPED_TRACE(on(4, slices, shard).str());
      test::expect_close(on(4, slices, shard).gradients(), alone, 1e-6);
    }
}

struct BatchGradients {
  double loss = 0;
  WholeTensors of;
  std::vector<std::string> added;  // parameters of whose gradients each rank forms a part
};

/// The gradients from a row of so many tokens, as the last rank has them.
BatchGradients gradients_of(TrainingCase each, int64_t tokens) {
  each.rows = {.of_step = 1, .length = tokens, .learnable = true};
  return each.on_rank(-1, [](TrainingRank& rank) {
    const double loss = rank.evaluate(0);
    BatchGradients all{loss, rank.gradients(), {}};
    for (const auto& unit : rank.decoder.units())
      for (const Parameter& parameter : unit->parameters())
        if (parameter.trainable && parameter.partial_along.has(Axis::tensor)) all.added.push_back(parameter.name);
    return all;
  });
}

/// The gradients of what sees slices alone, such as norms, are added in another order.
TEST_P(TensorParallel, any_number_of_tokens_in_slices_gives_the_loss_and_the_gradients_of_ranks_that_have_all) {
  for (const int tensor : {2, 4})
    for (const int64_t tokens : {1, 3, 7, 12}) {
      SCOPED_TRACE(fmt::format("{} ranks, {} tokens", tensor, tokens));
      const BatchGradients whole = gradients_of(on(tensor, false), tokens),
                           sliced = gradients_of(on(tensor, true), tokens);
      EXPECT_EQ(sliced.loss, whole.loss);
      EXPECT_GT(whole.loss, 0);
      EXPECT_GT(sliced.added.size(), whole.added.size());
      test::expect_close(sliced.of, whole.of, 1e-6);
      WholeTensors same = sliced.of, expected = whole.of;
      for (const std::string& name : sliced.added) same.erase(name), expected.erase(name);
      expect_same_bits(same, expected);
    }
}

INSTANTIATE_TEST_SUITE_P(Families, TensorParallel,
                         ::testing::Values("qk_norms", "biases", "latent", "sinks", "head_norms"),
                         test::name_of_structure);

/// Ranks that share heads each cache the keys and values of their own, and all see the logits of the whole vocabulary.
TEST(TensorParallelCache, logits_are_those_of_one_rank_and_a_token_that_one_ranks_slice_has_changes_no_bit) {
  const auto last_logits = [](int tensor, bool slices) {
    return TrainingCase{.mesh = {.sizes = {.tensor = tensor}, .sequence_parallel = slices}}.cached_logits();
  };
  const WholeTensors alone{{"logits", last_logits(1, false)}};
  for (const int tensor : {2, 4}) {
    const std::vector<float> shared = last_logits(tensor, false);
    test::expect_close({{"logits", shared}}, alone, 1e-5);
    EXPECT_EQ(last_logits(tensor, true), shared);
  }
}

}  // namespace
}  // namespace nought::tensor_parallel_test
