#include "nought/models/gguf_metadata.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "nought/nn/rope.h"

namespace nought {

namespace {

constexpr uint32_t kQuantizationVersion = 2;

/// What llama.cpp takes for granted of an architecture.
struct Architecture {
  std::string_view family, name;
  bool interleaved = false;  // rotates neighbours
  bool llama3_rope = false;  // reads rope_freqs
  bool longrope = false;     // reads rope_factors_long and _short
  int64_t window_period =
      0;  // every so many layers one sees everything; 1: none has a window; 0: the window is ignored
  bool normalises_experts = true;  // weights of the chosen experts add up to 1
  bool like_gpt = false;           // fused projections with biases, gelu by tanh, scores scaled by head_dim alone
};

constexpr Architecture kArchitectures[] = {
    {.family = "llama", .name = "llama", .interleaved = true, .llama3_rope = true, .longrope = true},
    {.family = "mistral", .name = "llama", .interleaved = true, .llama3_rope = true, .longrope = true},
    {.family = "mixtral", .name = "llama", .interleaved = true, .llama3_rope = true, .longrope = true},
    {.family = "qwen2", .name = "qwen2"},
    {.family = "qwen2_moe", .name = "qwen2moe", .normalises_experts = false},
    {.family = "qwen3", .name = "qwen3"},
    {.family = "qwen3_moe", .name = "qwen3moe"},
    {.family = "gemma", .name = "gemma"},
    {.family = "gemma2", .name = "gemma2", .window_period = 2},
    {.family = "gemma3_text", .name = "gemma3", .window_period = 6},
    {.family = "phi3", .name = "phi3", .longrope = true},
    {.family = "olmo2", .name = "olmo2"},
    {.family = "gpt2", .name = "gpt2", .like_gpt = true},
    {.family = "gpt_neox", .name = "gptneox", .like_gpt = true},
};

const Architecture& architecture_of(const ModelConfig& config) {
  const auto* found = std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                                   [&](const Architecture& each) { return each.family == config.family; });
  require<ConfigError>(found != std::end(kArchitectures), "{} cannot be exported as GGUF; {} can", config.family,
                       fmt::join(gguf_families(), ", "));
  return *found;
}

/// llama.cpp's numbers of what most tensors are.
uint32_t file_type(GgufType type) {
  switch (type) {
    case GgufType::f32:
      return 0;
    case GgufType::f16:
      return 1;
    case GgufType::q8_0:
      return 7;
    case GgufType::bf16:
      return 32;
    default:
      return 0;  // not written
  }
}

class Writer {
 public:
  Writer(const ModelConfig& config, const Architecture& architecture, std::vector<std::string>& notes)
      : config_(config), architecture_(architecture), notes_(notes) {}

  void put(const std::string& key, GgufValue value) { metadata_.emplace_back(key, std::move(value)); }
  void count(const std::string& key, int64_t value) { put(prefixed(key), static_cast<uint32_t>(value)); }
  void number(const std::string& key, double value) { put(prefixed(key), static_cast<float>(value)); }

  void add_sizes() {
    count("context_length", config_.max_positions);
    count("embedding_length", config_.hidden_size);
    count("block_count", config_.num_layers);
    // Mixtral's experts are the MLP of this architecture.
    count("feed_forward_length",
          config_.family == "mixtral" ? config_.experts->intermediate_size : config_.intermediate_size);
    count("attention.head_count", config_.num_heads);
    count("attention.head_count_kv", config_.num_kv_heads);
    count("attention.key_length", config_.head_dim);
    count("attention.value_length", config_.head_dim);
    number(config_.norm == NormKind::layer ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
           config_.norm_eps);
    count("vocab_size", config_.vocab_size);
    if (config_.attention_softcap > 0) number("attn_logit_softcapping", config_.attention_softcap);
    if (config_.logit_softcap > 0) number("final_logit_softcapping", config_.logit_softcap);
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
    if (experts.shared_intermediate_size > 0)
      count("expert_shared_feed_forward_length", experts.shared_intermediate_size);
    require<ConfigError>(std::find(experts.layers.begin(), experts.layers.end(), false) == experts.layers.end(),
                         "GGUF: llama.cpp's {} has experts in every layer, this model has some without",
                         architecture_.name);
    require<ConfigError>(experts.rule.normalise == architecture_.normalises_experts,
                         "GGUF: llama.cpp's {} {} the weights of the chosen experts (norm_topk_prob), this model {}",
                         architecture_.name, architecture_.normalises_experts ? "normalises" : "does not normalise",
                         experts.rule.normalise ? "does" : "does not");
  }

  void add_windows() {
    if (config_.sliding_window() == 0) return;
    if (architecture_.window_period == 0) {
      notes_.push_back(
          fmt::format("llama.cpp's {} ignores the sliding window: sequences of more than {} tokens see all",
                      architecture_.name, config_.sliding_window()));
      if (config_.family == "phi3") count("attention.sliding_window", config_.sliding_window());
      return;
    }
    count("attention.sliding_window", config_.sliding_window());
    const int64_t period = window_period();
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
    require<ConfigError>(!architecture_.interleaved || rope.rotary_dim == config_.head_dim,
                         "GGUF: llama.cpp's {} rotates whole heads of {}, this model rotates {} of each",
                         architecture_.name, config_.head_dim, rope.rotary_dim);
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
      number("rope.scaling.attn_factor", rope.table_scale() / yarn_mscale(rope.factor, 1));
      if (!rope.truncate) notes_.push_back("llama.cpp rounds the ends of YaRN's ramp, this model does not");
    }
  }

  GgufMetadata take() { return std::move(metadata_); }

 private:
  std::string prefixed(const std::string& key) const { return fmt::format("{}.{}", architecture_.name, key); }
  /// Every so many layers one sees everything, and the others have a window; 0: it is not that regular.
  int64_t window_period() const {
    const std::vector<int64_t>& windows = config_.sliding_windows;
    const int64_t period = std::find(windows.begin(), windows.end(), 0) - windows.begin() + 1;
    // Without a layer that sees everything, any period beyond their number will do.
    if (period > static_cast<int64_t>(windows.size())) return std::max(period, architecture_.window_period);
    for (int64_t i = 0; i < static_cast<int64_t>(windows.size()); ++i)
      if ((windows[static_cast<size_t>(i)] == 0) != ((i + 1) % period == 0)) return 0;
    return period;
  }

  const ModelConfig& config_;
  const Architecture& architecture_;
  std::vector<std::string>& notes_;
  GgufMetadata metadata_;
};

}  // namespace

const std::vector<std::string>& gguf_families() {
  static const std::vector<std::string> families = [] {
    std::vector<std::string> all;
    for (const Architecture& each : kArchitectures) all.emplace_back(each.family);
    return all;
  }();
  return families;
}

bool gguf_interleaves_rotation(const ModelConfig& config) { return architecture_of(config).interleaved; }

GgufMetadata gguf_metadata(const ModelConfig& config, GgufType type, const std::string& name,
                           std::vector<std::string>& notes) {
  const Architecture& architecture = architecture_of(config);
  Writer writer(config, architecture, notes);
  writer.put("general.architecture", std::string(architecture.name));
  writer.put("general.type", std::string("model"));
  writer.put("general.name", name);
  writer.put("general.file_type", file_type(type));
  writer.put("general.quantization_version", kQuantizationVersion);
  writer.add_sizes();
  writer.add_gpt();
  writer.add_experts();
  writer.add_windows();
  writer.add_rope();
  return writer.take();
}

}  // namespace nought
