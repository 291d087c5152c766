#include "nought/models/gguf_config.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "nought/base/json.h"
#include "nought/base/text.h"
#include "nought/io/convert.h"
#include "nought/io/strict_json.h"
#include "nought/nn/rope.h"

namespace nought {

namespace {

struct MetadataReader;
struct KnownArchitecture {
  std::string_view name, family;
  void (*read)(MetadataReader& reader) = nullptr;  // what only this architecture has
};

/// Collects the config.json of a file.
struct MetadataReader {
  const GgufFile& file;
  std::string architecture;
  Json json = Json::object();

  std::string key(std::string_view name) const { return fmt::format("{}.{}", architecture, name); }
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    throw ConfigError(
        one_line(fmt::format("{}: {}", file.path().string(), fmt::format(format, std::forward<Args>(args)...))));
  }
  std::optional<int64_t> count(std::string_view name) const { return file.integer(key(name)); }
  int64_t needed(std::string_view name) const {
    const std::optional<int64_t> found = count(name);
    if (!found) refuse("has no {}, which the model's config follows from", key(name));
    return *found;
  }
  void copy(const char* to, std::string_view from) {
    if (const auto found = count(from)) json[to] = *found;
  }
  void copy_number(const char* to, std::string_view from) {
    if (const auto found = file.number(key(from))) json[to] = *found;
  }
  bool has_tensor(std::string_view name) const { return file.find(name) != nullptr; }
};

/// A number that is the same for all layers.
std::optional<int64_t> same_for_all(const MetadataReader& reader, std::string_view name) {
  const std::vector<int64_t> all = reader.file.integers(reader.key(name));
  if (all.empty()) return std::nullopt;
  if (std::count(all.begin(), all.end(), all[0]) != std::ssize(all))
    reader.refuse("{} differs from layer to layer, which is not supported", reader.key(name));
  return all[0];
}

void read_sizes(MetadataReader& reader) {
  Json& json = reader.json;
  json["hidden_size"] = reader.needed("embedding_length");
  json["num_hidden_layers"] = reader.needed("block_count");
  json["max_position_embeddings"] = reader.needed("context_length");
  const std::optional<int64_t> heads = same_for_all(reader, "attention.head_count");
  if (!heads || *heads <= 0) reader.refuse("has no {}", reader.key("attention.head_count"));
  json["num_attention_heads"] = *heads;
  json["num_key_value_heads"] = same_for_all(reader, "attention.head_count_kv").value_or(*heads);
  json["head_dim"] = reader.count("attention.key_length").value_or(reader.needed("embedding_length") / *heads);
  if (const auto width = same_for_all(reader, "feed_forward_length")) json["intermediate_size"] = *width;
  const GgufEntry* embedding = reader.file.find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.rank() != 2) reader.refuse("has no embedding token_embd.weight");
  json["vocab_size"] = embedding->shape[0];
  json["tie_word_embeddings"] = !reader.has_tensor("output.weight");
  reader.copy_number("rms_norm_eps", "attention.layer_norm_rms_epsilon");
  for (const char* each : {"bos", "eos"})
    if (const auto id = reader.file.integer(fmt::format("tokenizer.ggml.{}_token_id", each)))
      json[fmt::format("{}_token_id", each)] = *id;
  // An answer ends where a turn does, too.
  if (const auto turn = reader.file.integer("tokenizer.ggml.eot_token_id"); turn && json.contains("eos_token_id"))
    json["eos_token_id"] = Json{json["eos_token_id"], *turn};
}

/// All values of a small tensor of floats.
std::vector<float> values_of(const MetadataReader& reader, const char* name) {
  const GgufEntry* entry = reader.file.find(name);
  if (entry == nullptr) return {};
  const WeightFormat& format = weight_format(entry->type);
  std::vector<float> values(static_cast<size_t>(entry->numel()));
  decode_blocks(entry->type, reader.file.raw(*entry).data(), entry->numel() / format.block, values.data());
  return values;
}

/// The options of llama3's scaling that give these factors on the wave lengths.
Json llama3_scaling(const MetadataReader& reader, const std::vector<float>& factors) {
  RopeOptions plain{.theta = reader.json["rope_theta"], .rotary_dim = 2 * std::ssize(factors)};
  const std::vector<double> frequencies = plain.frequencies(0);
  RopeOptions bent = plain;
  bent.kind = RopeKind::llama3;
  bent.factor = *std::max_element(factors.begin(), factors.end());
  const auto fits = [&] {
    const std::vector<double> tried = bent.frequencies(0);
    for (size_t i = 0; i < factors.size(); ++i)
      if (std::abs(frequencies[i] / tried[i] / static_cast<double>(factors[i]) - 1) > 1e-4) return false;
    return true;
  };
  for (const auto& [low, high] : {std::pair(1.0, 4.0), std::pair(1.0, 2.0), std::pair(1.0, 8.0), std::pair(2.0, 4.0)})
    for (int64_t original = 8; original <= (int64_t{1} << 20); original *= 2) {
      bent.low_freq_factor = low, bent.high_freq_factor = high, bent.original_max_positions = original;
      if (fits())
        return {{"rope_type", "llama3"},
                {"factor", bent.factor},
                {"low_freq_factor", low},
                {"high_freq_factor", high},
                {"original_max_position_embeddings", original}};
    }
  reader.refuse("rope_freqs.weight holds factors that no scaling of the kind \"llama3\" gives");
}

void read_rope(MetadataReader& reader) {
  reader.json["rope_theta"] = reader.file.number(reader.key("rope.freq_base")).value_or(10000);
  const std::string* named = reader.file.text(reader.key("rope.scaling.type"));
  const std::string type = named == nullptr ? "none" : *named;
  const auto number = [&](const char* name) { return reader.file.number(reader.key(name)); };
  Json scaling = Json::object();
  const std::vector<float> factors = values_of(reader, "rope_freqs.weight");
  const std::vector<float> longer = values_of(reader, "rope_factors_long.weight");
  if (!factors.empty() && std::ranges::any_of(factors, [](float each) { return each != 1; })) {
    scaling = llama3_scaling(reader, factors);
  } else if (!longer.empty()) {
    scaling = {{"rope_type", "longrope"},
               {"long_factor", longer},
               {"short_factor", values_of(reader, "rope_factors_short.weight")}};
    if (const auto scale = number("rope.scaling.attn_factor")) scaling["attention_factor"] = *scale;
    reader.json["original_max_position_embeddings"] = reader.needed("rope.scaling.original_context_length");
  } else if (type == "linear") {
    scaling = {{"rope_type", "linear"}, {"factor", number("rope.scaling.factor").value_or(1)}};
  } else if (type == "yarn") {
    const double factor = number("rope.scaling.factor").value_or(1);
    scaling = {{"rope_type", "yarn"},
               {"factor", factor},
               {"beta_fast", number("rope.scaling.yarn_beta_fast").value_or(32)},
               {"beta_slow", number("rope.scaling.yarn_beta_slow").value_or(1)},
               {"original_max_position_embeddings", reader.needed("rope.scaling.original_context_length")},
               {"attention_factor", number("rope.scaling.attn_factor").value_or(1) * yarn_mscale(factor, 1)}};
  } else if (type != "none") {
    reader.refuse("the rotary scaling \"{}\" is not read", excerpt(type));
  }
  if (!scaling.empty()) reader.json["rope_scaling"] = scaling;
}

/// The rotated part of a head.
void read_partial(MetadataReader& reader, const char* to) {
  const auto head_dim = reader.json["head_dim"].get<int64_t>();
  const int64_t rotated = reader.count("rope.dimension_count").value_or(head_dim);
  if (rotated != head_dim && head_dim > 0)
    reader.json[to] = static_cast<double>(rotated) / static_cast<double>(head_dim);
}

/// norm_topk_prob: the file's own word; else what llama.cpp takes for granted of the architecture, in a file that its
/// converter wrote (it writes general.type); else transformers' default.
void read_expert_weights(MetadataReader& reader, bool granted) {
  const std::optional<bool> said = reader.file.boolean(reader.key("expert_weights_norm"));
  reader.json["norm_topk_prob"] = said ? *said : granted && reader.file.text("general.type") != nullptr;
}

void read_experts(MetadataReader& reader, bool granted) {
  reader.json["num_experts"] = reader.needed("expert_count");
  reader.json["num_experts_per_tok"] = reader.needed("expert_used_count");
  reader.json["moe_intermediate_size"] = reader.needed("expert_feed_forward_length");
  read_expert_weights(reader, granted);
}

void read_llama_family(MetadataReader& reader) {
  reader.json["attention_bias"] = reader.has_tensor("blk.0.attn_q.bias");
  reader.json["mlp_bias"] = reader.has_tensor("blk.0.ffn_down.bias");
  if (!reader.count("expert_count").value_or(0)) return;
  reader.json["model_type"] = "mixtral";
  reader.json.erase("attention_bias"), reader.json.erase("mlp_bias");
  reader.json["num_local_experts"] = reader.needed("expert_count");
  reader.json["num_experts_per_tok"] = reader.needed("expert_used_count");
  reader.copy("intermediate_size", "expert_feed_forward_length");
}

void read_qwen2_moe(MetadataReader& reader) {
  read_experts(reader, false);
  reader.copy("shared_expert_intermediate_size", "expert_shared_feed_forward_length");
}

void read_qwen3_moe(MetadataReader& reader) { read_experts(reader, true); }
void read_qwen3(MetadataReader& reader) { reader.json["attention_bias"] = reader.has_tensor("blk.0.attn_q.bias"); }

/// llama.cpp scales the scores of the 27B models by the width of their layers.
void read_gemma_scale(MetadataReader& reader, int64_t layers_of_27b) {
  const auto hidden = reader.json["hidden_size"].get<int64_t>(),
             heads = reader.json["num_attention_heads"].get<int64_t>();
  const bool is_27b = reader.json["num_hidden_layers"] == layers_of_27b;
  reader.json["query_pre_attn_scalar"] = is_27b ? hidden / heads : reader.json["head_dim"].get<int64_t>();
}

void read_gemma2(MetadataReader& reader) {
  read_gemma_scale(reader, 46);
  reader.copy("sliding_window", "attention.sliding_window");
  reader.copy_number("attn_logit_softcapping", "attn_logit_softcapping");
  reader.copy_number("final_logit_softcapping", "final_logit_softcapping");
}

void read_gemma3(MetadataReader& reader) {
  read_gemma_scale(reader, 62);
  reader.copy("sliding_window", "attention.sliding_window");
  reader.copy("sliding_window_pattern", "attention.sliding_window_pattern");
  reader.copy_number("rope_local_base_freq", "rope.freq_base_swa");
  reader.copy_number("final_logit_softcapping", "final_logit_softcapping");
}

void read_phi3(MetadataReader& reader) {
  read_partial(reader, "partial_rotary_factor");
  reader.copy("sliding_window", "attention.sliding_window");
  reader.json.erase("head_dim");
}

void read_gpt2(MetadataReader& reader) {
  Json& json = reader.json;
  json = {{"n_embd", json["hidden_size"]},
          {"n_layer", json["num_hidden_layers"]},
          {"n_head", json["num_attention_heads"]},
          {"n_positions", json["max_position_embeddings"]},
          {"n_inner", json["intermediate_size"]},
          {"vocab_size", json["vocab_size"]},
          {"tie_word_embeddings", json["tie_word_embeddings"]},
          {"bos_token_id", json.value("bos_token_id", Json())},
          {"eos_token_id", json.value("eos_token_id", Json())}};
  reader.copy_number("layer_norm_epsilon", "attention.layer_norm_epsilon");
}

void read_gpt_neox(MetadataReader& reader) {
  Json& json = reader.json;
  reader.copy_number("layer_norm_eps", "attention.layer_norm_epsilon");
  json["use_parallel_residual"] = reader.file.boolean(reader.key("use_parallel_residual")).value_or(true);
  json["rotary_emb_base"] = json["rope_theta"];
  json["rotary_pct"] = 1.0;
  read_partial(reader, "rotary_pct");
  for (const char* each : {"rope_theta", "head_dim", "num_key_value_heads"}) json.erase(each);
}

constexpr KnownArchitecture kReadArchitectures[] = {{"llama", "llama", read_llama_family},
                                                    {"qwen2", "qwen2"},
                                                    {"qwen2moe", "qwen2_moe", read_qwen2_moe},
                                                    {"qwen3", "qwen3", read_qwen3},
                                                    {"qwen3moe", "qwen3_moe", read_qwen3_moe},
                                                    {"gemma", "gemma"},
                                                    {"gemma2", "gemma2", read_gemma2},
                                                    {"gemma3", "gemma3_text", read_gemma3},
                                                    {"phi3", "phi3", read_phi3},
                                                    {"olmo2", "olmo2"},
                                                    {"gpt2", "gpt2", read_gpt2},
                                                    {"gptneox", "gpt_neox", read_gpt_neox}};

}  // namespace

ModelConfig gguf_config(const GgufFile& file) {
  const std::string* name = file.text("general.architecture");
  MetadataReader reader{.file = file, .architecture = name == nullptr ? "" : *name};
  if (name == nullptr) reader.refuse("has no general.architecture: it is no model");
  const auto* known = std::find_if(std::begin(kReadArchitectures), std::end(kReadArchitectures),
                                   [&](const KnownArchitecture& each) { return each.name == *name; });
  if (known == std::end(kReadArchitectures)) {
    std::vector<std::string_view> names;
    for (const KnownArchitecture& each : kReadArchitectures) names.push_back(each.name);
    reader.refuse("the architecture \"{}\" is not read; read are {}", excerpt(*name), fmt::join(names, ", "));
  }
  read_sizes(reader);
  read_rope(reader);
  if (known->read != nullptr) known->read(reader);
  if (!reader.json.contains("model_type")) reader.json["model_type"] = known->family;
  return ModelConfig::from_json(reader.json, file.path().string());
}

}  // namespace nought
