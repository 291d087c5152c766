// Mixtures of experts compute what Hugging Face computes when its loss includes that of the routers
// (output_router_logits), in any layout: the loss that balances experts is one of the whole batch.
#include <fstream>
#include <numeric>

#include "support/balance.h"
#include "support/golden_output.h"
#include <nlohmann/json.hpp>

#include "nought/comm/thread.h"
#include "nought/train/hf_folder.h"
#include "nought/zero/micro_batch.h"

namespace nought::golden_moe_test {
namespace {

using test::golden_folder;

/// The folder's model with the routers' loss switched on.
ModelConfig balanced_config(const std::string& folder) {
  nlohmann::json json = nlohmann::json::parse(std::ifstream(folder + "/config.json"));
  json["output_router_logits"] = true;
  return ModelConfig::from_json(json, folder);
}

struct Layout {
  int ranks = 1, stage = 0;
  Recompute recompute = Recompute::none;
};

class GoldenAuxiliary : public ::testing::TestWithParam<const char*> {
 protected:
  /// Calls body(decoder, sharded model, input) on every rank.
  template <class Body>
  void on_ranks(const Layout& layout, const Body& body) const {
    const std::string folder = golden_folder(GetParam());
    SCOPED_TRACE(fmt::format("{} ranks, stage {}{}", layout.ranks, layout.stage,
                             layout.recompute == Recompute::none ? "" : ", recompute"));
    run_ranks(layout.ranks, [&](Communicator& ranks) {
      const Context context = Context::cpu();
      Decoder decoder(balanced_config(folder), layout.recompute);
      ShardedModel model(context, ranks, decoder, {.policy = Policy::stage(layout.stage)});
      model.load(HfWeights(folder, decoder));
      body(decoder, model, read_probe_input(context, folder + "/golden.safetensors", decoder.config().vocab_size));
    });
  }
};

TEST_P(GoldenAuxiliary, loss_and_gradients_agree_at_every_stage_and_rank_count) {
  const std::string golden = golden_folder(GetParam()) + "/golden_aux.safetensors";
  // Two rows: of four ranks, two have none.
  for (const Layout& layout : {Layout{1, 0},
                               {1, 0, Recompute::full},
                               {2, 0},
                               {2, 1},
                               {2, 2},
                               {2, 3},
                               {2, 3, Recompute::selective},
                               {4, 0},
                               {4, 3}}) {
    on_ranks(layout, [&](Decoder& decoder, ShardedModel& model, const ProbeInput& input) {
      ProbeOutput output = probe(model, decoder, input, true);
      std::erase_if(output, [](const auto& each) { return each.first == "logits"; });
      test::expect_golden(output, golden);
    });
  }
}

TEST_P(GoldenAuxiliary, the_log_holds_the_auxiliary_loss_and_every_choice) {
  const Context context = Context::reference();
  const SafetensorsFile golden(golden_folder(GetParam()) + "/golden_aux.safetensors");
  on_ranks({1, 0}, [&](Decoder& decoder, ShardedModel& model, const ProbeInput& input) {
    const Batch rows = probe_rows(model.context(), input, 0, 1);
    MicroBatch micro_batch(model, rows, {.recording = false});
    micro_batch.forward();
    const RouterLog& log = *Decoder::router_log(micro_batch.state());
    EXPECT_NEAR(test::balance_of(model.context(), log).loss.item(), golden.load("aux_loss", *context.memory).item(),
                5e-6);
    const ExpertsConfig& experts = *decoder.config().experts;
    EXPECT_EQ(log.layers().size(), 2u);
    for (const RouterLog::Layer& layer : log.layers()) {
      EXPECT_EQ(static_cast<int64_t>(layer.load.size()), experts.num_experts);
      EXPECT_EQ(std::accumulate(layer.load.begin(), layer.load.end(), int64_t{0}),
                input.ids.numel() * experts.rule.top_k);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenAuxiliary,
                         ::testing::Values("open/mixtral", "open/qwen2_moe", "open/qwen3_moe"),
                         [](const auto& info) { return std::string(info.param).substr(5); });

}  // namespace
}  // namespace nought::golden_moe_test
