// What ranks that share matrices do beside a run: recomputation, generation.
#include "support/sharing.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/train/engine.h"

namespace nought::tensor_parallel_test {
namespace {

using namespace test;

/// The whole gradients of one batch, of all parameters.
std::vector<float> gradients_of(const std::string& family, const GridSizes& sizes, const RecomputeOptions& recompute,
                                bool slices, bool overlap = true) {
  std::vector<float> all;
  run_ranks(sizes.tensor * sizes.shard, [&](Communicator& world, const Context& context) {
    const Mesh mesh(world, Sharing::sharing_experts(sizes));
    Decoder decoder(small_model(family), recompute, {}, ModelRanks(mesh, slices));
    ShardedModel model(context, mesh, decoder, {.policy = Policy::stage(sizes.shard > 1 ? 3 : 0), .overlap = overlap});
    model.load(InitialState(3));
    const Communicator& samples = mesh.group(Group::samples);
    const Batch batch = rows_of(*context.memory, 0, 0, samples.rank(), samples.size());
    Engine(model).accumulate(std::span(&batch, 1), 20);
    for (size_t unit = 0; unit < decoder.units().size(); ++unit)
      for (const Tensor& gradient : model.gather_gradients(unit)) {
        if (!gradient) continue;  // of what is not trained
        const std::vector<float> values = gradient.to_vector<float>();
        if (world.rank() == 0) all.insert(all.end(), values.begin(), values.end());
      }
    model.discard_gradients();
  });
  return all;
}

class TensorParallelFamilies : public ::testing::TestWithParam<const char*> {};

TEST_P(TensorParallelFamilies, recomputation_and_overlap_change_no_bit) {
  const GridSizes sizes{.shard = 2, .tensor = 2};
  for (const bool slices : {false, true}) {
    SCOPED_TRACE(slices);
    const std::vector<float> plain = gradients_of(GetParam(), sizes, Recompute::none, slices);
    ASSERT_FALSE(plain.empty());
    EXPECT_EQ(gradients_of(GetParam(), sizes, Recompute::none, slices, /*overlap=*/false), plain);
    EXPECT_EQ(gradients_of(GetParam(), sizes, Recompute::full, slices), plain);
    EXPECT_EQ(gradients_of(GetParam(), sizes, Recompute::selective, slices), plain);
  }
}

TEST_P(TensorParallelFamilies, parts_of_unequal_sizes_give_the_gradients_of_one_rank) {
  const std::vector<float> alone = gradients_of(GetParam(), {}, Recompute::none, false);
  for (const GridSizes sizes : {GridSizes{.tensor = 4}, GridSizes{.shard = 2, .tensor = 4}})
    for (const bool slices : {false, true}) {
      const std::vector<float> shared = gradients_of(GetParam(), sizes, Recompute::none, slices);
      ASSERT_EQ(shared.size(), alone.size());
      for (size_t i = 0; i < alone.size(); ++i) ASSERT_NEAR(shared[i], alone[i], 1e-6) << i << " slices " << slices;
    }
}

INSTANTIATE_TEST_SUITE_P(Families, TensorParallelFamilies,
                         ::testing::Values("qwen3", "deepseek_v3", "gpt_oss", "olmo2"),
                         [](const auto& info) { return std::string(info.param); });

/// Ranks that share heads each cache the keys and values of their own, and all see the logits of the whole vocabulary.
TEST(TensorParallel, logits_with_a_cache_are_those_of_one_rank) {
  const auto last_logits = [](int tensor, bool slices) {
    std::vector<float> logits;
    run_ranks(tensor, [&](Communicator& world) {
      Sharing rank(world, {.tensor = tensor}, small_model("qwen3"), {}, {}, slices);
      rank.model.load(InitialState(3));
      DecoderCache cache = rank.decoder.make_cache(rank.context, kSharingLength, DType::f32);
      const std::vector<int32_t> prompt{5, 60, 17, 0}, next{33};
      rank.decoder.next_logits(rank.context, std::array{NextTokens{0, prompt}}, cache);
      const Tensor last = rank.decoder.next_logits(rank.context, std::array{NextTokens{0, next}}, cache);
      if (world.rank() == tensor - 1) logits = last.to_vector<float>();
    });
    return logits;
  };
  const std::vector<float> alone = last_logits(1, false);
  ASSERT_EQ(alone.size(), 61);
  for (const int tensor : {2, 4}) {
    const std::vector<float> shared = last_logits(tensor, false);
    for (size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(shared[i], alone[i], 1e-5) << i;
    EXPECT_EQ(last_logits(tensor, true), shared) << "of a token that one rank's slice has";
  }
}

}  // namespace
}  // namespace nought::tensor_parallel_test
