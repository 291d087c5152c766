// Ranks that hold different layers compute what Hugging Face computes, by every schedule.
//
// The golden models have 2 or 3 blocks, thus 4 or 5 Units: enough for four pipeline stages. Interleaved1F1B and
// ZBVZeroBubble have two stages per rank, so that four ranks need 8 Units: no family can run them, and that is refused.
#include <fstream>

#include "support/golden_families.h"
#include "support/golden_output.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/comm/thread.h"
#include "nought/models/stages.h"
#include "nought/train/hf_folder.h"
#include "nought/train/model_schedule.h"

namespace nought::pipeline_golden_test {
namespace {

using test::golden_folder;

constexpr PipelineSchedule kSchedules[] = {PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b,
                                           PipelineSchedule::interleaved, PipelineSchedule::zbh1,
                                           PipelineSchedule::zbv};

struct Case {
  Pipeline pipeline;
  int shard = 1;
  int64_t micro_batches = 2;  // of whole rows: the golden batch has two

  int stages() const { return static_cast<int>(pipeline.ranks * pipeline.chunks); }
  std::string str() const {
    return fmt::format("{} with {} ranks, shard {}, {} micro-batches", name_of(pipeline.schedule), pipeline.ranks,
                       shard, micro_batches);
  }
};

/// What rank 0 gets of the golden batch.
ProbeOutput probe_with(const Case& of, const ModelConfig& config, const std::string& folder) {
  ProbeOutput result;
  const GridSizes sizes{.shard = of.shard, .pipeline = static_cast<int>(of.pipeline.ranks)};
  run_ranks(sizes.shard * sizes.pipeline, [&](Communicator& world, const Context& context) {
    const Mesh mesh(world, sizes);
    Decoder decoder(config, {}, {}, ModelRanks(mesh, false, cut_of(of.pipeline)));
    ShardedModel model(context, mesh, decoder, {.policy = Policy::stage(of.shard > 1 ? 3 : 0)});
    model.load(HfWeights(folder, decoder));
    const ProbeInput input = read_probe_input(context, folder + "/golden.safetensors", config.vocab_size);
    ProbeOutput output = probe(model, decoder, input, true,
                               {.micro_batches = of.micro_batches, .schedule = schedule_at(mesh, of.pipeline)});
    if (world.rank() == 0) result = std::move(output);
  });
  return result;
}

class GoldenPipeline : public ::testing::TestWithParam<const char*> {
 protected:
  const std::string folder = golden_folder(GetParam()), golden = folder + "/golden.safetensors";
};

TEST_P(GoldenPipeline, logits_loss_and_gradients_agree_with_two_and_four_ranks_by_every_schedule) {
  const ModelConfig config = ModelConfig::from_folder(folder);
  for (const PipelineSchedule schedule : kSchedules)
    for (const int ranks : {2, 4}) {
      const Case each{{.schedule = schedule, .ranks = ranks, .chunks = default_chunks(schedule)}};
      SCOPED_TRACE(each.str());
      if (each.stages() > 4) {
        EXPECT_LT(config.num_layers + 2, each.stages()) << "this family has enough Units: test it";
        EXPECT_THROW(stage_begins(config, {}, each.stages()), ConfigError);
        continue;
      }
      test::expect_all_golden(probe_with(each, config, folder), golden);
    }
}

TEST_P(GoldenPipeline, they_agree_where_stage_3_shards_each_pipeline_stage) {
  const ModelConfig config = ModelConfig::from_folder(folder);
  for (const PipelineSchedule schedule : {PipelineSchedule::one_f_one_b, PipelineSchedule::zbv}) {
    const Case each{{.schedule = schedule, .ranks = 2, .chunks = default_chunks(schedule)}, /*shard=*/2, 1};
    SCOPED_TRACE(each.str());
    test::expect_all_golden(probe_with(each, config, folder), golden);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenPipeline, test::staged_families(), test::family_of);

/// With the loss that balances experts, which is one of all layers and of the whole batch: of one micro-batch.
class GoldenAuxiliaryPipeline : public GoldenPipeline {};

TEST_P(GoldenAuxiliaryPipeline, the_loss_of_routers_and_its_gradients_agree) {
  nlohmann::json json = nlohmann::json::parse(std::ifstream(folder + "/config.json"));
  json["output_router_logits"] = true;
  const ModelConfig config = ModelConfig::from_json(json, folder);
  for (const PipelineSchedule schedule : kSchedules)
    for (const Case& each :
         {Case{{schedule, 2, default_chunks(schedule)}, 1, 1}, Case{{schedule, 4, default_chunks(schedule)}, 1, 1},
          Case{{schedule, 2, default_chunks(schedule)}, /*shard=*/4, 1}}) {  // two have placeholders
      if (each.stages() > 4) continue;
      SCOPED_TRACE(each.str());
      ProbeOutput output = probe_with(each, config, folder);
      std::erase_if(output, [](const auto& tensor) { return tensor.first == "logits"; });
      test::expect_golden(output, folder + "/golden_aux.safetensors");
    }
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenAuxiliaryPipeline,
                         ::testing::Values("open/mixtral", "open/qwen2_moe", "open/qwen3_moe"), test::family_of);

}  // namespace
}  // namespace nought::pipeline_golden_test
