// Closed formulas of memory are what the dry run counts.
#include "nought/simulate/memory.h"

#include <gtest/gtest.h>

#include "nought/plan/predict.h"
#include "nought/simulate/from_plan.h"

namespace nought::simulated_memory_test {
namespace {

Json llama(bool has_experts) {
  Json json{{"model_type", "llama"},     {"vocab_size", 32000},         {"hidden_size", 2048},
            {"intermediate_size", 5632}, {"num_hidden_layers", 8},      {"num_attention_heads", 16},
            {"num_key_value_heads", 8},  {"tie_word_embeddings", false}};
  if (has_experts) {
    json["model_type"] = "mixtral";
    json["num_local_experts"] = 8, json["num_experts_per_tok"] = 2;
  }
  return json;
}

const Json kGpt2{{"model_type", "gpt2"}, {"vocab_size", 50304}, {"n_embd", 2048},
                 {"n_layer", 8},         {"n_head", 16},        {"n_positions", 4096}};

struct Case {
  int stage = 1;
  Recompute recompute = Recompute::none;
  int tp = 1, cp = 1, ep = 1, pp = 1;
  bool offload = false;
};

/// Predicted by formulas, relative to the dry run.
double ratio_of(const Json& model, const Case& of) {
  const ModelConfig config = ModelConfig::from_json(model);
  Layout layout;
  layout.ranks = 8, layout.micro_batch = 1, layout.seq_length = 4096, layout.accumulation = 8;
  layout.sharding.dtype = layout.sharding.gradient_dtype = DType::bf16;
  layout.gpu = PlannedGpu{};
  layout = layout.at_zero_stage(of.stage);
  layout.recompute = of.recompute;
  layout.tensor_ranks = of.tp, layout.context_ranks = of.cp, layout.expert_ranks = of.ep, layout.pipeline.ranks = of.pp;
  layout.sequence_parallel = of.tp > 1;
  if (of.offload) layout.sharding.offload_optimizer.tier.pool = Pool::host;
  int64_t most = 0;
  for (const Prediction& each : predict_places(config, layout)) most = std::max(most, each.memory.peak_total);
  return simulate_memory(simulated_run(config, layout, software_of("megatron-core"))).total() /
         static_cast<double>(most);
}

TEST(SimulatedMemory, every_stage_and_recomputation_needs_what_the_dry_run_counts) {
  for (int stage = 0; stage < 4; ++stage) EXPECT_NEAR(ratio_of(llama(false), {.stage = stage}), 1, 0.05) << stage;
  EXPECT_NEAR(ratio_of(llama(false), {.recompute = Recompute::selective}), 1, 0.05);
  EXPECT_NEAR(ratio_of(llama(false), {.recompute = Recompute::full}), 1, 0.05);
  EXPECT_NEAR(ratio_of(kGpt2, {}), 1, 0.05);
  EXPECT_NEAR(ratio_of(kGpt2, {.stage = 0, .recompute = Recompute::full}), 1, 0.05);
}

TEST(SimulatedMemory, every_axis_shares_what_it_shares) {
  EXPECT_NEAR(ratio_of(llama(false), {.tp = 4}), 1, 0.05);
  EXPECT_NEAR(ratio_of(llama(false), {.cp = 4}), 1, 0.05);
  EXPECT_NEAR(ratio_of(llama(false), {.pp = 4}), 1, 0.05);
  EXPECT_NEAR(ratio_of(llama(true), {}), 1, 0.05);
  EXPECT_NEAR(ratio_of(llama(true), {.tp = 4}), 1, 0.05);
  EXPECT_NEAR(ratio_of(llama(true), {.ep = 4}), 1, 0.05);
  EXPECT_NEAR(ratio_of(llama(false), {.offload = true}), 1, 0.05);
}

}  // namespace
}  // namespace nought::simulated_memory_test
