// What is predicted of a step on GPUs is near what others have published of theirs, and follows their rates.
#include "nought/plan/gpu_time.h"

#include <cmath>
#include <map>

#include "support/size.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/models/flops.h"

namespace nought::gpu_time_test {
namespace {

using testing::HasSubstr;

/// A run of another program whose speed was published, with its batches, and with what is nearest to its recomputation:
/// full for whole blocks or MLPs, selective for activations. Runs in FP8 are left out, as products of FP8 are computed
/// in bf16 here; and what LLMQ keeps on the host for the larger models, which it moves beside its passes.
struct Published {
  std::string name, gpu;
  double tokens;  // per second of each GPU
  Json model;
  int ranks;
  int64_t micro_batch, accumulation, length;
  int zero_stage = 0;
  Recompute recompute = Recompute::none;
};

Json gpt2(int64_t hidden, int64_t layers, int64_t heads) {
  return {{"model_type", "gpt2"}, {"vocab_size", 50304}, {"n_embd", hidden},
          {"n_layer", layers},    {"n_head", heads},     {"n_positions", 1024}};
}

Json qwen(int64_t hidden, int64_t layers, int64_t heads, int64_t kv_heads, int64_t intermediate, int64_t vocab,
          bool tied) {
  return {{"model_type", "qwen2"},           {"vocab_size", vocab},
          {"hidden_size", hidden},           {"intermediate_size", intermediate},
          {"num_hidden_layers", layers},     {"num_attention_heads", heads},
          {"num_key_value_heads", kv_heads}, {"tie_word_embeddings", tied},
          {"max_position_embeddings", 32768}};
}

const Json kGpt124 = gpt2(768, 12, 12), kGpt1558 = gpt2(1600, 48, 25);
const Json kQwen05 = qwen(896, 24, 14, 2, 4864, 151936, true), kQwen15 = qwen(1536, 28, 12, 2, 8960, 151936, true),
           kQwen3 = qwen(2048, 36, 16, 2, 11008, 151936, true), kQwen7 = qwen(3584, 28, 28, 4, 18944, 152064, false),
           kQwen14 = qwen(5120, 48, 40, 8, 13824, 152064, false);
const Json kLlama8 = {{"model_type", "llama"},      {"vocab_size", 128256},         {"hidden_size", 4096},
                      {"intermediate_size", 14336}, {"num_hidden_layers", 32},      {"num_attention_heads", 32},
                      {"num_key_value_heads", 8},   {"tie_word_embeddings", false}, {"max_position_embeddings", 8192}};

// llm.c: scripts/run_gpt2_*.sh and its discussions; LLMQ: benchmarks/{H100x1,H100x8,4090x1}.md; torchtitan:
// benchmarks/llama3_h100_202412_torchtitan.md; torch.compile: modded-nanogpt's record 7.
const std::vector<Published>& published() {
  static const std::vector<Published> all = {
      {"llm.c 124M, 8 A100", "a100", 218e3, kGpt124, 8, 64, 1, 1024, 1},
      {"llm.c 124M, 8 H100", "h100", 475e3, kGpt124, 8, 64, 1, 1024, 1},
      {"torch.compile 124M, 8 H100", "h100", 462e3, kGpt124, 8, 64, 1, 1024, 0},
      {"llm.c 1558M, 8 H100", "h100", 47.6e3, kGpt1558, 8, 16, 8, 1024, 1},
      {"LLMQ 0.5B, H100", "h100", 149e3, kQwen05, 1, 32, 16, 1024},
      {"LLMQ 1.5B, H100", "h100", 59e3, kQwen15, 1, 32, 16, 1024},
      {"LLMQ 3B, H100", "h100", 31e3, kQwen3, 1, 16, 32, 1024},
      {"LLMQ 7B, H100", "h100", 13.8e3, kQwen7, 1, 4, 128, 1024},
      {"LLMQ 14B, H100", "h100", 6.3e3, kQwen14, 1, 8, 64, 1024, 0, Recompute::full},
      {"LLMQ 7B, 8 H100", "h100", 14e3, kQwen7, 8, 8, 8, 1024, 1},
      {"LLMQ 0.5B, 4090", "4090", 40e3, kQwen05, 1, 16, 32, 1024},
      {"LLMQ 1.5B, 4090", "4090", 14e3, kQwen15, 1, 4, 128, 1024},
      {"LLMQ 3B, 4090", "4090", 7e3, kQwen3, 1, 4, 128, 1024, 0, Recompute::selective},
      {"LLMQ 7B, 4090", "4090", 2.8e3, kQwen7, 1, 16, 32, 1024, 0, Recompute::full},
      {"LLMQ 14B, 4090", "4090", 1.3e3, kQwen14, 1, 32, 16, 1024, 0, Recompute::full},
      {"torchtitan 8B, 8 H100", "h100-500w", 5762, kLlama8, 8, 2, 1, 8192, 3, Recompute::selective},
      {"torchtitan 8B compiled, 8 H100", "h100-500w", 6667, kLlama8, 8, 2, 1, 8192, 3, Recompute::selective},
  };
  return all;
}

/// torchtitan's GPUs had HBM2e of 2.4 TB/s, and 500 W of 700.
GpuRates rates_of(const std::string& gpu) {
  if (gpu != "h100-500w") return gpu_rates(gpu);
  GpuRates rates = gpu_rates("h100");
  rates.products *= 500.0 / 700, rates.attention *= 500.0 / 700, rates.memory *= 2.4 / 3.35;
  return rates;
}

Layout on_gpus(int ranks, int stage, int64_t micro_batch, int64_t accumulation, int64_t length) {
  Layout layout;
  layout.ranks = ranks, layout.zero_stage = stage, layout.micro_batch = micro_batch, layout.seq_length = length;
  layout.accumulation = accumulation, layout.sharding.dtype = DType::bf16;
  layout.gpu = PlannedGpu{.product_workspace = {}, .staged = false};
  return layout;
}

StepTime time_of(const Json& model, const Layout& layout, const GpuRates& gpu) {
  const ModelConfig config = ModelConfig::from_json(model);
  return gpu_step_time(config, predict_places(config, layout), gpu);
}

double predicted(const Published& run) {
  Layout layout = on_gpus(run.ranks, run.zero_stage, run.micro_batch, run.accumulation, run.length);
  layout.recompute.mode = run.recompute;
  return time_of(run.model, layout, rates_of(run.gpu)).throughput->tokens / run.ranks;
}

NOUGHT_SIZE(medium);
TEST(GpuTime, published_runs_are_predicted_within_30_percent_and_15_in_the_mean) {
  double sum = 0;
  for (const Published& run : published()) {
    const double tokens = predicted(run), error = std::abs(tokens / run.tokens - 1);
    EXPECT_LE(error, 0.3) << run.name << ": " << tokens << " for " << run.tokens;
    sum += error;
  }
  EXPECT_LE(sum / static_cast<double>(published().size()), 0.15);
}

const Json kSmall = {{"model_type", "llama"},        {"vocab_size", 256},      {"hidden_size", 64},
                     {"intermediate_size", 128},     {"num_hidden_layers", 4}, {"num_attention_heads", 4},
                     {"max_position_embeddings", 64}};

/// One of everything, but for what is named, which is slow.
GpuRates slow(double GpuRates::*what) {
  GpuRates rates{.name = "slow",
                 .peak = 1e15,
                 .products = 1e15,
                 .products_f32 = 1e15,
                 .attention = 1e15,
                 .memory = 1e12,
                 .exchange = 1e12,
                 .bus = 1e12,
                 .host_memory = 1e12,
                 .launch = 1e-12};
  rates.*what = what == &GpuRates::launch ? 1 : 1e6;
  return rates;
}

double shown(const StepTime& time, std::string_view name) {
  for (const StepPart& part : time.parts)
    if (part.name == name) return part.seconds() - part.hidden;
  return -1;
}

TEST(GpuTime, what_is_slow_is_named_as_the_limit) {
  Layout layout = on_gpus(2, 2, 2, 1, 64);
  layout.sharding.offload_optimizer.tier.pool = Pool::host;
  const std::map<std::string, double GpuRates::*> limits = {{"products", &GpuRates::products},
                                                            {"attention", &GpuRates::attention},
                                                            {"memory traffic", &GpuRates::memory},
                                                            {"exchange", &GpuRates::exchange},
                                                            {"bus", &GpuRates::bus},
                                                            {"launches", &GpuRates::launch},
                                                            {"optimizer on the host", &GpuRates::host_memory}};
  for (const auto& [name, rate] : limits) {
    const StepTime time = time_of(kSmall, layout, slow(rate));
    EXPECT_EQ(time.throughput->limit, name);
    EXPECT_THAT(to_text(time), HasSubstr("limited by " + name));
  }
  const StepTime few_tokens = time_of(kSmall, on_gpus(1, 0, 1, 1, 2), slow(&GpuRates::memory));
  EXPECT_EQ(few_tokens.throughput->limit, "optimizer") << "its states are more than the activations of two tokens";
}

TEST(GpuTime, operands_of_products_and_small_heads_take_their_time) {
  const Layout layout = on_gpus(1, 0, 2, 1, 64);
  const Prediction work = predict(ModelConfig::from_json(kSmall), layout);
  const GpuRates rates = gpu_rates("h100");
  const StepTime time = time_of(kSmall, layout, rates);
  EXPECT_GT(work.product_bytes, work.other_bytes);
  EXPECT_DOUBLE_EQ(shown(time, "memory traffic"), (work.other_bytes + work.product_bytes) / rates.memory);
  EXPECT_DOUBLE_EQ(shown(time, "products"), (work.executed_flops - work.attention_flops) / rates.products);
  EXPECT_DOUBLE_EQ(shown(time, "attention"), work.attention_flops / (rates.attention * 2 * 16 / (16 + 128)));
}

TEST(GpuTime, exchanges_of_states_run_beside_the_passes_and_those_of_matrices_do_not) {
  const GpuRates rates = slow(&GpuRates::memory);
  const StepTime sharded = time_of(kSmall, on_gpus(2, 3, 2, 1, 64), rates);
  EXPECT_EQ(shown(sharded, "exchange"), 0);
  Layout layout = on_gpus(2, 0, 2, 1, 64);
  layout.tensor_ranks = 2;
  const StepTime tensor = time_of(kSmall, layout, rates);
  EXPECT_GT(shown(tensor, "exchange in passes"), 0);
  layout = on_gpus(2, 3, 2, 1, 64);
  layout.sharding.overlap = false;
  EXPECT_GT(shown(time_of(kSmall, layout, rates), "exchange"), 0);
}

TEST(GpuTime, new_parameters_come_back_behind_an_update_on_the_host) {
  Layout layout = on_gpus(1, 1, 2, 1, 64);
  const GpuRates rates = slow(&GpuRates::memory);  // passes that hide all else
  EXPECT_EQ(shown(time_of(kSmall, layout, rates), "optimizer on the host"), -1);
  layout.sharding.offload_optimizer.tier.pool = Pool::host;
  const StepTime time = time_of(kSmall, layout, rates);
  const auto parameters = static_cast<double>(ModelConfig::from_json(kSmall).parameter_count());
  EXPECT_NEAR(shown(time, "bus"), 2 * parameters / rates.bus, 1e-12);
  EXPECT_GT(shown(time, "optimizer on the host"), 28 * parameters / rates.host_memory);
  layout.sharding.offload_optimizer.early = true;
  EXPECT_EQ(shown(time_of(kSmall, layout, rates), "bus"), 0);
}

TEST(GpuTime, stages_of_a_pipeline_wait_for_each_other) {
  Layout layout = on_gpus(2, 0, 1, 2, 64);
  layout.pipeline.ranks = 2;
  const StepTime time = time_of(kSmall, layout, slow(&GpuRates::memory));
  EXPECT_GT(shown(time, "waiting for stages"), 0);
  ASSERT_TRUE(time.timeline);
  EXPECT_EQ(shown(time_of(kSmall, on_gpus(2, 0, 1, 2, 64), slow(&GpuRates::memory)), "waiting for stages"), -1);
}

TEST(GpuTime, tokens_and_mfu_are_those_of_the_step) {
  const Layout layout = on_gpus(2, 0, 2, 4, 64);
  const GpuRates rates = gpu_rates("h100");
  const ModelConfig config = ModelConfig::from_json(kSmall);
  std::vector<Prediction> places = predict_places(config, layout);
  const StepTime time = gpu_step_time(config, places, rates);
  EXPECT_DOUBLE_EQ(time.throughput->tokens, 2 * 2 * 4 * 64 / time.seconds());
  const double flops = training_flops_per_token(config, 64);
  EXPECT_DOUBLE_EQ(time.throughput->mfu, time.throughput->tokens / 2 * flops / rates.peak);
  places[0].frozen_flops_per_token = flops / 4;
  EXPECT_DOUBLE_EQ(gpu_step_time(config, places, rates).throughput->mfu, 0.75 * time.throughput->mfu);
  EXPECT_THAT(to_json(time)["throughput"]["limited_by"].get<std::string>(), time.throughput->limit);
  EXPECT_THAT(to_text(time), HasSubstr("rates of an h100; nothing was measured here"));
}

TEST(GpuTime, a_run_in_f32_has_the_rates_of_f32) {
  Layout layout = on_gpus(1, 0, 2, 1, 64);
  const double bf16 = shown(time_of(kSmall, layout, gpu_rates("h100")), "products");
  layout.sharding.dtype = DType::f32;
  EXPECT_DOUBLE_EQ(shown(time_of(kSmall, layout, gpu_rates("h100")), "products"), 16 * bf16);
}

}  // namespace
}  // namespace nought::gpu_time_test
