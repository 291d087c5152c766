// Ranks that hold parts of the same sequences compute what Hugging Face computes, by each method.
#include <fstream>

#include "support/golden_families.h"
#include "support/golden_output.h"
#include "support/sharing.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/comm/thread.h"
#include "nought/train/hf_folder.h"

namespace nought::context_parallel_golden_test {
namespace {

using test::golden_folder;
using test::Sharing;

struct Layout {
  GridSizes sizes;
  ContextMethod method;
  Recompute recompute = Recompute::none;
};

/// Every method on 2 and on 4 ranks, beside samples and beside shared matrices.
std::vector<Layout> layouts_of(const ModelConfig& config) {
  std::vector<Layout> all;
  for (const ContextMethod method : {ContextMethod::ring, ContextMethod::gather, ContextMethod::heads})
    for (const GridSizes& sizes :
         {GridSizes{.context = 2}, {.context = 4}, {.shard = 2, .context = 2}, {.context = 2, .tensor = 2}}) {
      const bool spreads = config.num_heads / sizes.tensor % sizes.context == 0;
      if (method == ContextMethod::heads && !spreads) continue;
      all.push_back({sizes, method, sizes.context == 4 ? Recompute::full : Recompute::none});
    }
  return all;
}

class GoldenContextParallel : public ::testing::TestWithParam<const char*> {
 protected:
  const std::string folder = golden_folder(GetParam());

  /// Probes with gradients on every layout: at stage 3 where ranks shard. The rows have 37 tokens, or less.
  template <class Check>
  void on_layouts(const ModelConfig& config, const Check& check) const {
    for (const Layout& each : layouts_of(config)) {
      const GridSizes& sizes = each.sizes;
      SCOPED_TRACE(fmt::format("{}: context {}, shard {}, tensor {}", name_of(each.method), sizes.context, sizes.shard,
                               sizes.tensor));
      run_ranks(sizes.context * sizes.shard * sizes.tensor, [&](Communicator& world) {
        const ShardedModel::Options options{.policy = Policy::stage(sizes.shard > 1 ? 3 : 0)};
        Sharing rank(world, sizes, config, options, {}, sizes.tensor > 1, {}, each.recompute, each.method);
        rank.model.load(HfWeights(folder, rank.decoder));
        const ProbeInput input = read_probe_input(rank.context, folder + "/golden.safetensors", config.vocab_size);
        const ProbeOutput output = probe(rank.model, rank.decoder, input, true);
        if (world.rank() == 0) check(output);
      });
    }
  }
};

TEST_P(GoldenContextParallel, logits_loss_and_gradients_agree_by_every_method) {
  on_layouts(ModelConfig::from_folder(folder),
             [&](const ProbeOutput& output) { test::expect_all_golden(output, folder + "/golden.safetensors"); });
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenContextParallel, test::cut_families(), test::family_of);

/// With the loss that balances experts: each token counts on the rank that has it.
class GoldenAuxiliaryContextParallel : public GoldenContextParallel {};

TEST_P(GoldenAuxiliaryContextParallel, the_loss_of_routers_and_its_gradients_agree) {
  nlohmann::json json = nlohmann::json::parse(std::ifstream(folder + "/config.json"));
  json["output_router_logits"] = true;
  on_layouts(ModelConfig::from_json(json, folder), [&](ProbeOutput output) {
    std::erase_if(output, [](const auto& each) { return each.first == "logits"; });
    test::expect_golden(output, folder + "/golden_aux.safetensors");
  });
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenAuxiliaryContextParallel,
                         ::testing::Values("open/mixtral", "open/qwen2_moe", "open/qwen3_moe"), test::family_of);

}  // namespace
}  // namespace nought::context_parallel_golden_test
