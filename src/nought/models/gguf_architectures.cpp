#include "nought/models/gguf_architectures.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace nought {

namespace {

using enum GgufBias;

constexpr GgufArchitecture kArchitectures[] = {
    {.family = "llama", .name = "llama", .interleaved = true, .partial = false, .llama3_rope = true, .longrope = true},
    {.family = "mistral",
     .name = "llama",
     .interleaved = true,
     .partial = false,
     .llama3_rope = true,
     .longrope = true},
    {.family = "mixtral",
     .name = "llama",
     .interleaved = true,
     .partial = false,
     .llama3_rope = true,
     .longrope = true,
     .width_of_experts = true},
    {.family = "qwen2", .name = "qwen2"},
    {.family = "qwen2_moe", .name = "qwen2moe", .routing = GgufRouting::plain},
    {.family = "qwen3", .name = "qwen3"},
    {.family = "qwen3_moe", .name = "qwen3moe"},
    {.family = "gemma", .name = "gemma"},
    {.family = "gemma2", .name = "gemma2", .window_period = 2},
    {.family = "gemma3_text", .name = "gemma3", .window_period = 6},
    {.family = "phi3", .name = "phi3", .longrope = true, .keeps_window = true},
    {.family = "olmo2", .name = "olmo2"},
    {.family = "gpt2", .name = "gpt2", .like_gpt = true},
    {.family = "gpt_neox", .name = "gptneox", .like_gpt = true},
    {.family = "cohere2",
     .name = "cohere2",
     .interleaved = true,
     .window_period = 4,
     .unrotated = GgufUnrotated::full,
     .square = true,
     .qkv_bias = never,
     .output_bias = never},
    {.family = "deepseek_v2",
     .name = "deepseek2",
     .interleaved = true,
     .own_scale = true,
     .output_bias = never,
     .routing = GgufRouting::keys,
     .dense_lead = true},
    {.family = "deepseek_v3",
     .name = "deepseek2",
     .interleaved = true,
     .own_scale = true,
     .output_bias = never,
     .routing = GgufRouting::keys,
     .dense_lead = true},
    {.family = "ernie4_5",
     .name = "ernie4_5",
     .interleaved = true,
     .partial = false,
     .output_bias = never,
     .mlp_bias = never},
    {.family = "ernie4_5_moe",
     .name = "ernie4_5-moe",
     .interleaved = true,
     .partial = false,
     .dense_lead = true,
     .spread_experts = true},
    {.family = "exaone4",
     .name = "exaone4",
     .partial = false,
     .llama3_rope = true,
     .window_period = 4,
     .unrotated = GgufUnrotated::full,
     .square = true},
    {.family = "glm4", .name = "glm4", .interleaved = true, .output_bias = never},
    {.family = "glm4_moe",
     .name = "glm4moe",
     .output_bias = never,
     .routing = GgufRouting::keys,
     .dense_lead = true,
     .mlp_norm = "post_attention_norm"},
    {.family = "gpt_oss",
     .name = "gpt-oss",
     .window_period = 2,
     .untied = true,
     .output_bias = always,
     .routing = GgufRouting::of_chosen,
     .mlp_norm = "post_attention_norm"},
    {.family = "granite",
     .name = "granite",
     .interleaved = true,
     .partial = false,
     .llama3_rope = true,
     .longrope = true,
     .own_scale = true,
     .multiplies = true},
    {.family = "lfm2", .name = "lfm2", .square = true, .final_norm = "token_embd_norm"},
    {.family = "llama4_text",
     .name = "llama4",
     .interleaved = true,
     .partial = false,
     .llama3_rope = true,
     .window_period = 4,
     .unrotated = GgufUnrotated::every_fourth,
     .output_bias = never,
     .routing = GgufRouting::input_scaled,
     .spread_experts = true},
    {.family = "minimax_m2",
     .name = "minimax-m2",
     .untied = true,
     .routing = GgufRouting::sigmoid,
     .width_of_experts = true},
    {.family = "ministral3",
     .name = "mistral3",
     .interleaved = true,
     .partial = false,
     .llama3_rope = true,
     .longrope = true,
     .keeps_window = true},
    {.family = "olmo3",
     .name = "olmo2",
     .partial = false,
     .window_period = 4,
     .square = true,
     .untied = true,
     .output_bias = never},
    {.family = "olmoe",
     .name = "olmoe",
     .partial = false,
     .square = true,
     .heads_of_keys = true,
     .untied = true,
     .output_bias = never,
     .routing = GgufRouting::plain,
     .width_of_experts = true},
    {.family = "phi", .name = "phi2", .square = true, .untied = true, .like_gpt = true},
    {.family = "qwen3_5_moe_text", .name = "qwen35moe", .output_bias = never, .mlp_norm = "post_attention_norm"},
    {.family = "qwen3_5_text", .name = "qwen35", .output_bias = never, .mlp_norm = "post_attention_norm"},
    {.family = "qwen3_next", .name = "qwen3next", .output_bias = never, .mlp_norm = "post_attention_norm"},
    {.family = "seed_oss",
     .name = "seed_oss",
     .partial = false,
     .output_bias = never,
     .mlp_bias = never,
     .mlp_norm = "post_attention_norm"},
    {.family = "smollm3",
     .name = "smollm3",
     .interleaved = true,
     .partial = false,
     .unrotated = GgufUnrotated::every_fourth,
     .output_bias = never,
     .mlp_bias = never},
    {.family = "starcoder2", .name = "starcoder2", .keeps_window = true, .square = true, .like_gpt = true},
};

/// What llama.cpp's exaone4 has windows with.
constexpr int64_t kLayersOfExaone4 = 64;
/// What llama.cpp's llama4 has for constants.
constexpr int64_t kChunkOfLlama4 = 8192;
constexpr double kScaleOfLlama4 = 0.1;

/// Refuses what an architecture does not have.
class Check {
 public:
  explicit Check(const ModelConfig& config) : config_(config), architecture_(gguf_architecture(config)) {}

  void needs(bool holds, std::string_view what) const {
    require<ConfigError>(holds, "GGUF: llama.cpp's {} {}, this model does not", architecture_.name, what);
  }
  void lacks(bool has, std::string_view what) const {
    require<ConfigError>(!has, "GGUF: llama.cpp's {} has no {}, this model has", architecture_.name, what);
  }

  void bias(GgufBias rule, bool has, std::string_view what) const {
    if (rule == never) lacks(has, what);
    if (rule == always) needs(has, fmt::format("has {}", what));
  }

  void shape() const {
    bias(architecture_.qkv_bias, config_.qkv_bias, "biases of queries, keys and values");
    bias(architecture_.output_bias, config_.output_bias, "bias of what attention gives");
    bias(architecture_.mlp_bias, config_.mlp_bias, "biases in MLPs");
    if (architecture_.square)
      needs(config_.num_heads * config_.head_dim == config_.hidden_size, "has heads that fill the hidden size");
    if (architecture_.heads_of_keys)
      needs(config_.num_kv_heads == config_.num_heads, "has as many heads of keys as of queries");
    lacks(config_.qkv_clip > 0, "bounds of queries, keys and values (clip_qkv)");
    if (architecture_.untied) needs(!config_.tie_word_embeddings, "has a head of its own");
    if (config_.short_conv) lacks(config_.short_conv->bias, "biases in convolutions");
  }

  void rotation() const {
    require<ConfigError>(
        architecture_.partial || config_.positions != PositionKind::rope || config_.rope.rotary_dim == config_.head_dim,
        "GGUF: llama.cpp's {} rotates whole heads of {}, this model rotates {} of each", architecture_.name,
        config_.head_dim, config_.rope.rotary_dim);
    const auto rotates = [&](int64_t layer) {
      if (architecture_.unrotated == GgufUnrotated::every_fourth) return (layer + 1) % 4 != 0;
      if (architecture_.unrotated == GgufUnrotated::full && config_.sliding_window() > 0)
        return config_.sliding_windows[static_cast<size_t>(layer)] > 0;
      return true;
    };
    constexpr std::string_view kRules[] = {"rotates in every layer", "rotates in all layers but every fourth",
                                           "rotates in the layers that have a window"};
    for (int64_t i = 0; i < config_.num_layers; ++i)
      needs(config_.rotates(i) == rotates(i), kRules[static_cast<size_t>(architecture_.unrotated)]);
  }

  void experts() const {
    if (!config_.experts) return;
    const ExpertsConfig& experts = *config_.experts;
    const bool keys = architecture_.routing == GgufRouting::keys, plain = architecture_.routing == GgufRouting::plain;
    const bool fixed = plain || architecture_.routing == GgufRouting::normalised;
    const RouterRule& rule = experts.rule;
    require<ConfigError>(!fixed || rule.normalise == !plain,
                         "GGUF: llama.cpp's {} {} the weights of the chosen experts (norm_topk_prob), this model {}",
                         architecture_.name, plain ? "does not normalise" : "normalises",
                         rule.normalise ? "does" : "does not");
    needs(keys || (rule.num_groups == 1 && rule.scaling == 1), "chooses experts without groups and factors");
    needs(rule.num_groups == 1 || rule.group_score == GroupScore::best_two,
          "scores groups of experts by the two best of each");
    for (int64_t i = 0; i < config_.num_layers; ++i) needs_experts(i);
  }

 private:
  /// Experts are in every layer, from one on, or in every n-th.
  void needs_experts(int64_t layer) const {
    const std::vector<bool>& layers = config_.experts->layers;
    const auto lead = std::find(layers.begin(), layers.end(), true) - layers.begin();
    const bool has = layers[static_cast<size_t>(layer)];
    if (architecture_.dense_lead) return needs(has == (layer >= lead), "has experts in every layer from one on");
    if (architecture_.spread_experts)
      return needs(has == ((layer + 1) % (lead + 1) == 0), "has experts in every n-th layer");
    require<ConfigError>(has, "GGUF: llama.cpp's {} has experts in every layer, this model has some without",
                         architecture_.name);
  }

  const ModelConfig& config_;
  const GgufArchitecture& architecture_;
};

/// What is constant in llama.cpp, or depends on other things there.
void check_constants(const ModelConfig& config) {
  const Check check(config);
  const bool windows = config.sliding_window() > 0;
  if (config.family == "exaone4")
    check.needs(windows == (config.num_layers == kLayersOfExaone4),
                fmt::format("has windows if it has {} layers", kLayersOfExaone4));
  if (config.chunked) {
    check.needs(
        config.sliding_window() == kChunkOfLlama4 && config.qk_norm == QkNorm::unweighted &&
            config.query_scale ==
                QueryScale{.beta = kScaleOfLlama4, .length = kChunkOfLlama4, .shift = 1, .unrotated_only = true},
        "attends in chunks of 8192 with an attn_scale of 0.1, a floor_scale of 8192 and normalised heads");
  } else if (config.query_scale) {
    check.needs(config.rope.kind == RopeKind::yarn && config.query_scale->length == config.rope.original_max_positions,
                "scales queries by the original length of YaRN");
  }
  if (config.delta)
    check.needs(config.delta->shape.key_dim == config.delta->shape.value_dim, "has keys and values of one width");
  if (!config.latent) return;
  check.lacks(config.latent->down_bias, "biases in latent attention");
  check.needs(config.rope.interleaved, "rotates neighbours (rope_interleave)");
  const RopeOptions& rope = config.rope;
  const bool plain = rope.kind == RopeKind::plain;
  const bool by_both = rope.kind == RopeKind::yarn && rope.mscale_all_dim.value_or(0) != 0 &&
                       rope.mscale == rope.mscale_all_dim && !rope.attention_factor && config.family == "deepseek_v3";
  check.needs(plain || by_both, "rotates plainly, or as deepseek_v3 by YaRN with mscale = mscale_all_dim");
}

}  // namespace

const GgufArchitecture& gguf_architecture(const ModelConfig& config) {
  const auto* found = std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                                   [&](const GgufArchitecture& each) { return each.family == config.family; });
  require<ConfigError>(found != std::end(kArchitectures), "{} cannot be exported as GGUF; {} can", config.family,
                       fmt::join(gguf_families(), ", "));
  return *found;
}

const std::vector<std::string>& gguf_families() {
  static const std::vector<std::string> families = [] {
    std::vector<std::string> all;
    for (const GgufArchitecture& each : kArchitectures) all.emplace_back(each.family);
    return all;
  }();
  return families;
}

void check_for_gguf(const ModelConfig& config, std::vector<std::string>& notes) {
  const Check check(config);
  check.shape();
  check.rotation();
  check.experts();
  check_constants(config);
  if (config.latent && config.norm_eps != 1e-6)
    notes.push_back("llama.cpp's deepseek2 normalises latent vectors with rms_norm_eps, this model with 1e-6");
}

int64_t window_period(const ModelConfig& config, int64_t all) {
  const std::vector<int64_t>& windows = config.sliding_windows;
  const int64_t period = std::find(windows.begin(), windows.end(), 0) - windows.begin() + 1;
  // Without a layer that sees everything, any period beyond their number will do.
  if (period > static_cast<int64_t>(windows.size())) return std::max(period, all);
  for (int64_t i = 0; i < static_cast<int64_t>(windows.size()); ++i)
    if ((windows[static_cast<size_t>(i)] == 0) != ((i + 1) % period == 0)) return 0;
  return period;
}

}  // namespace nought
