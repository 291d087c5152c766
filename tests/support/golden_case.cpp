#include "support/golden_case.h"

#include <fstream>

#include "support/sweep.h"
#include <nlohmann/json.hpp>

#include "nought/engine/model_schedule.h"
#include "nought/weights/hf_folder.h"

namespace nought::test {

std::vector<const char*> mesh_families() {
  std::vector<const char*> all{"open/deepseek_v3", "open/gemma2",    "open/gpt2",     "open/gpt_neox",
                               "open/gpt_oss",     "open/llama_gqa", "open/olmo2",    "open/qwen2_moe",
                               "open/qwen2_swa",   "open/qwen3",     "open/qwen3_moe"};
  if (!runs_everything()) return all;
  all.clear();
  for (const char* family : kGoldenFamilies)
    if (std::string(family) != "open/gpt2_untied") all.push_back(family);  // ranks cannot share its five heads
  return all;
}

std::vector<const char*> long_options() {
  if (!runs_everything()) return {};
  std::vector<const char*> all(std::begin(kGoldenOptions), std::end(kGoldenOptions));
  std::erase_if(all, [](std::string_view each) { return std::ranges::count(kGoldenStates, each) > 0; });
  return all;
}

std::string family_of(const ::testing::TestParamInfo<const char*>& info) { return std::string(info.param).substr(5); }

ModelConfig GoldenCase::config() const {
  if (!balanced) return ModelConfig::from_folder(folder);
  Json json = Json::parse(std::ifstream(folder + "/config.json"));
  json["output_router_logits"] = true;
  if (balance_coefficient > 0) json["router_aux_loss_coef"] = balance_coefficient;
  return ModelConfig::from_json(json, folder);
}

TrainingCase GoldenCase::training() const {
  return {.model = config(),
          .mesh = mesh,
          .settings = {},
          .recompute = recompute,
          .guarded = guarded,
          .contexts = contexts,
          .load = [from = folder](ShardedModel& model, Decoder& decoder) { model.load(HfWeights(from, decoder)); }};
}

void GoldenCase::on_ranks(const std::function<void(TrainingRank&, const ProbeInput&)>& body) const {
  training().on_ranks([&](TrainingRank& rank) {
    body(rank, read_probe_input(rank.context, golden(), rank.decoder.config().vocab_size));
  });
}

ProbeOutput GoldenCase::probe(const std::function<void(const ProbeInput&)>& change) const {
  ProbeOutput result;
  on_ranks([&](TrainingRank& rank, const ProbeInput& input) {
    if (change) change(input);
    ProbeOutput output =
        nought::probe(rank.model, rank.decoder, input, true,
                      {.micro_batches = micro_batches, .schedule = schedule_at(rank.mesh, mesh.pipeline())});
    if (rank.is_first()) result = std::move(output);
  });
  return result;
}

void GoldenCase::expect_golden() const {
  SCOPED_TRACE(training().str());
  ProbeOutput output = probe();
  if (!balanced) return expect_all_golden(output, golden());
  std::erase_if(output, [](const auto& each) { return each.first == "logits"; });
  EXPECT_GT(output.size(), 1u);
  nought::test::expect_golden(output, folder + "/golden_aux.safetensors");
}

void expect_cached_logits(TrainingRank& rank, const Tensor& ids, const std::vector<int64_t>& counts) {
  const int64_t vocab = rank.decoder.config().vocab_size;
  const Tensor all = rank.decoder.logits(rank.context, {ids, {}});
  const double tolerance = rank.decoder.config().keeps_states() ? 1e-4 : 0;  // states come about by chunks, or by steps
  DecoderCache cache = rank.decoder.make_cache(rank.context, ids.dim(1), DType::f32);
  int64_t held = 0;
  for (const int64_t count : counts) {
    const NextTokens fed{0, ids.flat(held, held + count).span<int32_t>()};
    const Tensor next = rank.decoder.next_logits(rank.context, std::span(&fed, 1), cache);
    held += count;
    EXPECT_LE(difference(next, all.flat((held - 1) * vocab, held * vocab)).max_abs, tolerance) << held;
  }
}

}  // namespace nought::test
