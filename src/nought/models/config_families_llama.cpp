// The dense families that are llama with options. Defaults: those of transformers 4.57.
#include "nought/models/config_common.h"
#include "nought/models/config_families.h"

namespace nought {

namespace {

// --- llama, mistral, olmo2 ---

void read_llama(ConfigReader& reader, ModelConfig& config) {
  read_llama_like(reader, config, {32000, 4096, 11008, 32, 32, 0, 0, 2048});
  config.qkv_bias = config.output_bias = reader.boolean("attention_bias").value_or(false);
  config.mlp_bias = reader.boolean("mlp_bias").value_or(false);
  reader.only("pretraining_tp", 1, "split products are not reproduced");
}

void write_llama(const ModelConfig& config, OrderedJson& json) {
  write_llama_like(config, json);
  json["attention_bias"] = config.qkv_bias;
  json["mlp_bias"] = config.mlp_bias;
}

void read_mistral(ConfigReader& reader, ModelConfig& config) {
  read_llama_like(reader, config, {32000, 4096, 14336, 32, 32, 8, 0, 131072});
  set_sliding_windows(config, read_sliding_window(reader, 4096));
}

void write_windowed(const ModelConfig& config, OrderedJson& json) {
  write_llama_like(config, json);
  json["sliding_window"] = size_or_null(config.sliding_window());
}

void read_olmo2(ConfigReader& reader, ModelConfig& config) {
  read_llama_like(reader, config, {50304, 4096, 11008, 32, 32, 0, 0, 2048, 1e-5});
  config.qkv_bias = config.output_bias = reader.boolean("attention_bias").value_or(false);
  config.norm_placement = NormPlacement::post;
  config.qk_norm = QkNorm::whole;
}

void write_biased(const ModelConfig& config, OrderedJson& json) {
  write_llama_like(config, json);
  json["attention_bias"] = config.qkv_bias;
}

// --- qwen2, qwen3 ---

/// Layers from max_window_layers on slide, if use_sliding_window.
void read_qwen_windows(ConfigReader& reader, ModelConfig& config) {
  const int64_t window = read_used_window(reader), first = reader.integer("max_window_layers").value_or(28);
  read_layer_types(
      reader, config, window, [](int64_t layer, int64_t from) { return layer >= from; }, first);
}

void write_qwen_windows(const ModelConfig& config, OrderedJson& json) {
  write_layer_types(config, json);
  json["use_sliding_window"] = config.sliding_window() > 0;
}

void read_qwen2(ConfigReader& reader, ModelConfig& config) {
  read_llama_like(reader, config, {151936, 4096, 22016, 32, 32, 32, 0, 32768});
  config.qkv_bias = true;
  read_qwen_windows(reader, config);
}

void write_qwen2(const ModelConfig& config, OrderedJson& json) {
  write_llama_like(config, json);
  write_qwen_windows(config, json);
}

void read_qwen3(ConfigReader& reader, ModelConfig& config) {
  read_llama_like(reader, config, {151936, 4096, 22016, 32, 32, 32, 128, 32768});
  config.qkv_bias = config.output_bias = reader.boolean("attention_bias").value_or(false);
  config.qk_norm = QkNorm::per_head;
  read_qwen_windows(reader, config);
}

void write_qwen3(const ModelConfig& config, OrderedJson& json) {
  write_biased(config, json);
  write_qwen_windows(config, json);
}

constexpr Family kLlamaFamilies[] = {{"llama", "LlamaForCausalLM", read_llama, write_llama},
                                     {"mistral", "MistralForCausalLM", read_mistral, write_windowed},
                                     {"olmo2", "Olmo2ForCausalLM", read_olmo2, write_biased},
                                     {"qwen2", "Qwen2ForCausalLM", read_qwen2, write_qwen2},
                                     {"qwen3", "Qwen3ForCausalLM", read_qwen3, write_qwen3}};

}  // namespace

std::span<const Family> llama_families() { return kLlamaFamilies; }

}  // namespace nought
