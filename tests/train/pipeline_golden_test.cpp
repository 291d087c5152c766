// Ranks that hold different layers compute what Hugging Face computes.
#include "support/golden_families.h"
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

INSTANTIATE_TEST_SUITE_P(Families, GoldenPipeline, test::cut_families(), test::family_of);

}  // namespace
}  // namespace nought
