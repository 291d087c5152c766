// Ranks that hold different layers compute what Hugging Face computes.
#include "support/golden_output.h"
#include "support/sharing.h"
#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/models/stages.h"
#include "nought/train/hf_folder.h"

namespace nought {
namespace {

using test::golden_folder;
using test::Sharing;

class GoldenPipeline : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenPipeline, logits_loss_and_gradients_agree_with_two_and_four_stages) {
  const std::string folder = golden_folder(GetParam()), golden = folder + "/golden.safetensors";
  const ModelConfig config = ModelConfig::from_folder(folder);
  for (const GridSizes sizes : std::vector<GridSizes>{{.pipeline = 2}, {.pipeline = 4}, {.shard = 2, .pipeline = 2}}) {
    if (config.num_layers + 2 < sizes.pipeline) continue;
    SCOPED_TRACE(fmt::format("pipeline {}, shard {}", sizes.pipeline, sizes.shard));
    run_ranks(sizes.pipeline * sizes.shard, [&](Communicator& world) {
      Sharing rank(world, sizes, config, {.policy = Policy::stage(sizes.shard > 1 ? 3 : 0)});
      rank.model.load(HfWeights(folder, rank.decoder));
      const ProbeOutput output =
          probe(rank.model, rank.decoder, read_probe_input(rank.context, golden, config.vocab_size), true);
      if (world.rank() == 0) test::expect_all_golden(output, golden);
    });
  }
}

std::string family_of(const ::testing::TestParamInfo<const char*>& info) { return std::string(info.param).substr(5); }

INSTANTIATE_TEST_SUITE_P(Families, GoldenPipeline,
                         ::testing::Values("open/deepseek_v2", "open/deepseek_v2_lite", "open/deepseek_v3",
                                           "open/deepseek_v3_yarn", "open/gemma", "open/gemma2", "open/gemma3_text",
                                           "open/gpt2", "open/gpt_neox", "open/gpt_oss", "open/llama", "open/llama3",
                                           "open/llama_gqa", "open/llama_linear", "open/llama_yarn", "open/mistral",
                                           "open/mixtral", "open/olmo2", "open/phi3", "open/phi3_longrope",
                                           "open/qwen2", "open/qwen2_moe", "open/qwen2_swa", "open/qwen3",
                                           "open/qwen3_moe"),
                         family_of);

}  // namespace
}  // namespace nought
