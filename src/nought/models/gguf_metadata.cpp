#include "nought/models/gguf_metadata.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "nought/models/gguf_architectures.h"
#include "nought/nn/rope.h"

namespace nought {

namespace {

constexpr uint32_t kQuantizationVersion = 2;

class Writer {
 public:
  Writer(const ModelConfig& config, const GgufArchitecture& architecture, std::vector<std::string>& notes)
      : config_(config), architecture_(architecture), notes_(notes) {}

  void put(const std::string& key, GgufValue value) { metadata_.emplace_back(key, std::move(value)); }
  void count(const std::string& key, int64_t value) { put(prefixed(key), static_cast<uint32_t>(value)); }
  void number(const std::string& key, double value) { put(prefixed(key), static_cast<float>(value)); }

  void add_sizes() {
    count("context_length", config_.max_positions);
    count("embedding_length", config_.hidden_size);
    count("block_count", config_.num_layers);
    // Where experts are the MLP of the architecture, it has their width.
    count("feed_forward_length",
          architecture_.width_of_experts ? config_.experts->intermediate_size : config_.intermediate_size);
    count("attention.head_count", config_.num_heads);
    config_.latent ? add_latent() : add_heads();
    number(config_.norm == NormKind::layer ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
           config_.norm_eps);
    count("vocab_size", config_.vocab_size);
    if (config_.attention_softcap > 0) number("attn_logit_softcapping", config_.attention_softcap);
    if (config_.logit_softcap > 0) number("final_logit_softcapping", config_.logit_softcap);
  }

  void add_multipliers() {
    if (architecture_.multiplies) {
      number("embedding_scale", config_.embedding_scale);
      number("residual_scale", config_.residual_scale);
      number("attention.scale", config_.attention_scale);
      number("logit_scale", config_.logit_divisor);
    } else if (config_.logit_divisor != 1) {
      number("logit_scale", 1 / config_.logit_divisor);
    }
    if (config_.query_scale && !config_.chunked) number("attention.temperature_scale", config_.query_scale->beta);
  }

  /// What layers that keep a state are made of.
  void add_states() {
    if (config_.short_conv) count("shortconv.l_cache", config_.short_conv->taps);
    if (!config_.delta) return;
    const DeltaShape& shape = config_.delta->shape;
    count("ssm.conv_kernel", config_.delta->taps);
    count("ssm.state_size", shape.key_dim);
    count("ssm.group_count", shape.key_heads);
    count("ssm.time_step_rank", shape.value_heads);
    count("ssm.inner_size", shape.values());
    const int64_t interval = std::find(config_.layer_kinds.begin(), config_.layer_kinds.end(), LayerKind::attention) -
                             config_.layer_kinds.begin() + 1;
    for (int64_t i = 0; i < config_.num_layers; ++i)
      require<ConfigError>((config_.kind_of(i) == LayerKind::attention) == ((i + 1) % interval == 0),
                           "GGUF: llama.cpp's {} attends in every n-th layer, this model in others",
                           architecture_.name);
    count("full_attention_interval", interval);
    if (config_.delta->grouped) return;
    // Text has one position for all three sections.
    const auto pairs = static_cast<int32_t>(config_.rope.rotary_dim / 2);
    put(prefixed("rope.dimension_sections"), std::vector<int32_t>{(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0});
  }

  /// What llama.cpp's gpt2 and gptneox take for granted.
  void add_gpt() {
    if (!architecture_.like_gpt) return;
    const auto needs = [&](bool holds, std::string_view what) {
      require<ConfigError>(holds, "GGUF: llama.cpp's {} {}, this model does not", architecture_.name, what);
    };
    const double by_width = 1 / std::sqrt(static_cast<double>(config_.head_dim));
    needs(std::abs(config_.attention_scale / by_width - 1) < 1e-9 && !config_.scale_by_layer,
          "divides scores by the root of head_dim");
    needs(config_.qkv_bias && config_.output_bias && config_.mlp_bias, "has biases in every projection");
    needs(config_.activation == Activation::gelu_tanh || config_.activation == Activation::gelu_erf, "computes gelu");
    if (config_.activation == Activation::gelu_erf)
      notes_.push_back(
          fmt::format("llama.cpp's {} approximates gelu by tanh, this model computes it by erf", architecture_.name));
    if (config_.family != "gpt_neox") return;
    needs(!config_.tie_word_embeddings, "has a head of its own");
    put(prefixed("use_parallel_residual"), config_.parallel_residual);
  }

  void add_experts() {
    if (!config_.experts) return;
    const ExpertsConfig& experts = *config_.experts;
    count("expert_count", experts.num_experts);
    count("expert_used_count", experts.rule.top_k);
    if (config_.family != "mixtral") count("expert_feed_forward_length", experts.intermediate_size);
    const int64_t shared = experts.shared_intermediate_size;
    if (shared > 0) count("expert_shared_feed_forward_length", shared);
    if (architecture_.dense_lead || architecture_.routing == GgufRouting::keys)
      count("expert_shared_count", shared / experts.intermediate_size);
    const auto lead = std::find(experts.layers.begin(), experts.layers.end(), true) - experts.layers.begin();
    if (architecture_.dense_lead) count("leading_dense_block_count", lead);
    if (architecture_.spread_experts) count("interleave_moe_layer_step", architecture_.dense_lead ? 1 : lead + 1);
    if (architecture_.routing == GgufRouting::keys || architecture_.routing == GgufRouting::sigmoid)
      count("expert_gating_func", static_cast<int64_t>(experts.rule.scores) + 1);
    if (architecture_.routing != GgufRouting::keys) return;
    put(prefixed("expert_weights_norm"), experts.rule.normalise);
    number("expert_weights_scale", experts.rule.scaling);
    count("expert_group_count", experts.rule.num_groups);
    count("expert_group_used_count", experts.rule.kept_groups);
  }

  void add_windows() {
    if (config_.sliding_window() == 0) return;
    if (architecture_.window_period == 0) {
      notes_.push_back(
          fmt::format("llama.cpp's {} ignores the sliding window: sequences of more than {} tokens see all",
                      architecture_.name, config_.sliding_window()));
      if (architecture_.keeps_window) count("attention.sliding_window", config_.sliding_window());
      return;
    }
    if (config_.chunked) {  // llama.cpp knows the size of chunks
      const int64_t period = window_period(config_, architecture_.window_period);
      require<ConfigError>(period > 0, "GGUF: llama.cpp's {} attends in chunks in all layers but every n-th",
                           architecture_.name);
      return count("attention.sliding_window_pattern", period);
    }
    count("attention.sliding_window", config_.sliding_window());
    const int64_t period = window_period(config_, architecture_.window_period);
    if (period == architecture_.window_period) return;  // what is taken for granted, by older versions too
    if (period > 0) return count("attention.sliding_window_pattern", period);
    notes_.push_back(fmt::format("llama.cpp's {} has a window in all layers but every {}th, this model in others",
                                 architecture_.name, architecture_.window_period));
  }

  void add_rope() {
    if (config_.positions == PositionKind::learned) return;
    const RopeOptions& rope = config_.rope;
    count("rope.dimension_count", rope.rotary_dim);
    number("rope.freq_base", rope.theta);
    if (config_.local_rope) number("rope.freq_base_swa", config_.local_rope->theta);
    require<ConfigError>((rope.kind != RopeKind::llama3 || architecture_.llama3_rope) &&
                             (rope.kind != RopeKind::longrope || architecture_.longrope),
                         "GGUF: llama.cpp's {} does not read this model's rotary scaling (rope_type)",
                         architecture_.name);
    if (config_.rotates_by_row())
      notes_.push_back(
          fmt::format("llama.cpp does not know the rope type \"dynamic\": beyond {} tokens it rotates otherwise",
                      config_.max_positions));
    if (rope.kind == RopeKind::linear) {
      put(prefixed("rope.scaling.type"), std::string("linear"));
      number("rope.scaling.factor", rope.factor);
    }
    if (rope.kind == RopeKind::longrope) {  // a factor would stretch the frequencies once more
      put(prefixed("rope.scaling.type"), std::string("longrope"));
      count("rope.scaling.original_context_length", rope.original_max_positions);
      number("rope.scaling.attn_factor", rope.table_scale());
    }
    if (rope.kind == RopeKind::yarn) {
      put(prefixed("rope.scaling.type"), std::string("yarn"));
      number("rope.scaling.factor", rope.factor);
      count("rope.scaling.original_context_length", rope.original_max_positions);
      number("rope.scaling.yarn_beta_fast", rope.beta_fast);
      number("rope.scaling.yarn_beta_slow", rope.beta_slow);
      add_temperature();
      if (!rope.truncate) notes_.push_back("llama.cpp rounds the ends of YaRN's ramp, this model does not");
      put(prefixed("rope.scaling.truncate"), rope.truncate);  // which llama.cpp does not read
    }
  }

  GgufMetadata take() { return std::move(metadata_); }

 private:
  std::string prefixed(const std::string& key) const { return fmt::format("{}.{}", architecture_.name, key); }
  void add_heads() {
    if (config_.short_conv) {  // layers without heads of keys are convolutions
      std::vector<int32_t> heads;
      for (int64_t i = 0; i < config_.num_layers; ++i)
        heads.push_back(config_.kind_of(i) == LayerKind::attention ? static_cast<int32_t>(config_.num_kv_heads) : 0);
      put(prefixed("attention.head_count_kv"), heads);
    } else {
      count("attention.head_count_kv", config_.num_kv_heads);
    }
    count("attention.key_length", config_.head_dim);
    count("attention.value_length", config_.head_dim);
  }

  /// llama.cpp's heads share one key, the latent vector and the rotated part, and one value, the latent vector.
  void add_latent() {
    const LatentConfig& latent = *config_.latent;
    count("attention.head_count_kv", 1);
    count("attention.key_length", latent.kv_rank + latent.shared_dim);
    count("attention.value_length", latent.kv_rank);
    count("attention.key_length_mla", config_.head_dim);
    count("attention.value_length_mla", latent.value_dim);
    count("attention.q_lora_rank", latent.q_rank);
    count("attention.kv_lora_rank", latent.kv_rank);
  }

  /// YaRN's attention temperature, of which llama.cpp knows a part.
  void add_temperature() {
    const RopeOptions& rope = config_.rope;
    const double all = rope.mscale_all_dim.value_or(0);
    const bool known = rope.mscale == 1 && all != 0 && !rope.attention_factor;
    if (config_.latent) return number("rope.scaling.yarn_log_multiplier", 0.1 * all);
    if (config_.query_scale && known) return number("rope.scaling.yarn_log_multiplier", all);
    number("rope.scaling.attn_factor", rope.table_scale() / yarn_mscale(rope.factor, 1));
  }

  const ModelConfig& config_;
  const GgufArchitecture& architecture_;
  std::vector<std::string>& notes_;
  GgufMetadata metadata_;
};

}  // namespace

GgufMetadata gguf_metadata(const ModelConfig& config, uint32_t file_type, const std::string& name,
                           std::vector<std::string>& notes) {
  const GgufArchitecture& architecture = gguf_architecture(config);
  check_for_gguf(config, notes);
  Writer writer(config, architecture, notes);
  writer.put("general.architecture", std::string(architecture.name));
  writer.put("general.type", std::string("model"));
  writer.put("general.name", name);
  writer.put("general.file_type", file_type);
  writer.put("general.quantization_version", kQuantizationVersion);
  writer.add_sizes();
  writer.add_gpt();
  writer.add_multipliers();
  writer.add_states();
  writer.add_experts();
  writer.add_windows();
  writer.add_rope();
  return writer.take();
}

}  // namespace nought
