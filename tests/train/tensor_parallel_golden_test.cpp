// Ranks that share matrices, heads, experts and the vocabulary compute what Hugging Face computes.
#include <fstream>

#include "support/golden_families.h"
#include "support/golden_output.h"
#include "support/sharing.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/comm/thread.h"
#include "nought/models/tensor_cuts.h"
#include "nought/train/hf_folder.h"

namespace nought::tensor_parallel_golden_test {
namespace {

using test::golden_folder;
using test::Sharing;

struct Layout {
  GridSizes sizes;
  bool slices = false;  // see Sharing
};
const std::vector<Layout> kMeshes{
    {{.tensor = 2}}, {{.tensor = 4}}, {{.shard = 2, .tensor = 2}}, {{.tensor = 2}, true}, {{.tensor = 4}, true}};

class GoldenTensorParallel : public ::testing::TestWithParam<const char*> {
 protected:
  const std::string folder = golden_folder(GetParam()), golden = folder + "/golden.safetensors";

  /// Calls body(rank, input) on every rank of every mesh: at stage 3 where ranks shard.
  template <class Body>
  void on_meshes(const ModelConfig& config, const Body& body) const {
    for (const auto& [sizes, slices] : kMeshes) {
      ASSERT_EQ(reason_not_to_cut(config, sizes.tensor), "");
      SCOPED_TRACE(fmt::format("tensor {}, shard {}, slices {}", sizes.tensor, sizes.shard, slices));
      run_ranks(sizes.tensor * sizes.shard, [&, sizes = sizes, slices = slices](Communicator& world) {
        Sharing rank(world, sizes, config, {.policy = Policy::stage(sizes.shard > 1 ? 3 : 0)}, {}, slices);
        rank.model.load(HfWeights(folder, rank.decoder));
        body(rank, read_probe_input(rank.context, golden, config.vocab_size));
      });
    }
  }
};

TEST_P(GoldenTensorParallel, logits_loss_and_gradients_agree_at_every_size) {
  on_meshes(ModelConfig::from_folder(folder), [&](Sharing& rank, const ProbeInput& input) {
    const ProbeOutput output = probe(rank.model, rank.decoder, input, true);
    if (rank.mesh.world().rank() == 0) test::expect_all_golden(output, golden);
  });
}

/// Ranks that share heads each cache the keys and values of their own.
TEST_P(GoldenTensorParallel, logits_with_a_cache_equal_those_without) {
  on_meshes(ModelConfig::from_folder(folder), [&](Sharing& rank, const ProbeInput& input) {
    const Tensor ids = probe_rows(rank.context, input, 0, 1).input_ids.slice(0, 1);  // [1, length]
    const int64_t length = ids.dim(1), vocab = rank.decoder.config().vocab_size;
    const Tensor all = rank.decoder.logits(rank.context, {ids, {}});
    DecoderCache cache = rank.decoder.make_cache(rank.context, length, DType::f32);
    for (int64_t held = 0; held < length;) {
      const int64_t count = held == 0 ? length - 3 : 1;
      const NextTokens fed{0, ids.flat(held, held + count).span<int32_t>()};
      const Tensor next = rank.decoder.next_logits(rank.context, std::span(&fed, 1), cache);
      held += count;
      EXPECT_LE(test::difference(next, all.flat((held - 1) * vocab, held * vocab)).max_abs, 1e-4) << held;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenTensorParallel, test::cut_families(), test::family_of);

/// With the loss that balances experts: every rank that shares matrices routes all tokens, and each counts once.
class GoldenAuxiliaryTensorParallel : public GoldenTensorParallel {};

TEST_P(GoldenAuxiliaryTensorParallel, the_loss_of_routers_and_its_gradients_agree) {
  nlohmann::json json = nlohmann::json::parse(std::ifstream(folder + "/config.json"));
  json["output_router_logits"] = true;
  on_meshes(ModelConfig::from_json(json, folder), [&](Sharing& rank, const ProbeInput& input) {
    ProbeOutput output = probe(rank.model, rank.decoder, input, true);
    std::erase_if(output, [](const auto& each) { return each.first == "logits"; });
    test::expect_golden(output, folder + "/golden_aux.safetensors");
  });
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenAuxiliaryTensorParallel,
                         ::testing::Values("open/mixtral", "open/qwen2_moe", "open/qwen3_moe"), test::family_of);

}  // namespace
}  // namespace nought::tensor_parallel_golden_test
