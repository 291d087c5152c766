// Ranks that share matrices, heads and the vocabulary compute what one rank computes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/golden.h"

#include "nought/comm/thread.h"
#include "nought/models/tensor_cuts.h"
#include "nought/train/hf_folder.h"
#include "nought/train/probe.h"

namespace nought {
namespace {

using test::golden_folder;

/// A decoder on one rank of a mesh.
struct Sharing {
  Sharing(Communicator& world, const GridSizes& sizes, const ModelConfig& config, ShardedModel::Options options = {},
          Context on = Context::cpu())
      : context(std::move(on)),
        mesh(world, sizes),
        decoder(config, Recompute::none, {}, TensorRanks(mesh)),
        model(context, mesh, decoder, options) {}
  Context context;
  Mesh mesh;
  Decoder decoder;
  ShardedModel model;
};

class GoldenTensorParallel : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenTensorParallel, logits_loss_and_gradients_agree_at_every_size) {
  const std::string folder = golden_folder(GetParam()), golden = folder + "/golden.safetensors";
  const ModelConfig config = ModelConfig::from_folder(folder);
  int agreed = 0;
  for (const GridSizes sizes : std::vector<GridSizes>{{.tensor = 2}, {.tensor = 4}, {.shard = 2, .tensor = 2}}) {
    if (!reason_not_to_cut(config, sizes.tensor).empty()) continue;
    SCOPED_TRACE(fmt::format("tensor {}, shard {}", sizes.tensor, sizes.shard));
    run_ranks(sizes.tensor * sizes.shard, [&](Communicator& world) {
      Sharing rank(world, sizes, config, {.policy = Policy::stage(sizes.shard > 1 ? 3 : 0)});
      rank.model.load(HfWeights(folder, rank.decoder));
      const ProbeInput input = read_probe_input(rank.context, golden, config.vocab_size);
      const ProbeOutput output = probe(rank.model, rank.decoder, input, true);
      if (world.rank() != 0) return;
      const SafetensorsFile expected(golden);
      EXPECT_EQ(output.size(), expected.entries().size() - 2);
      for (const auto& [name, tensor] : output) {
        const Tensor want = expected.load(name, *rank.context.memory);
        if (name == "logits") {
          EXPECT_LE(test::difference(tensor, want).max_abs, 5e-5);
        } else if (name == "loss") {
          EXPECT_NEAR(tensor.item(), want.item(), 5e-6);
        } else {
          test::expect_gradient_close(name, tensor, want, 5e-5);
        }
      }
      ++agreed;
    });
  }
  EXPECT_EQ(agreed, 3);
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenTensorParallel,
                         ::testing::Values("open/gemma", "open/gemma2", "open/gemma3_text", "open/gpt2",
                                           "open/gpt_neox", "open/llama", "open/llama3", "open/llama_gqa",
                                           "open/llama_linear", "open/llama_yarn", "open/mistral", "open/phi3",
                                           "open/phi3_longrope", "open/qwen2", "open/qwen2_swa", "open/qwen3"),
                         [](const auto& info) { return std::string(info.param).substr(5); });

}  // namespace
}  // namespace nought
