#include "nought/models/gguf_config.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "nought/base/json.h"
#include "nought/base/text.h"
#include "nought/io/convert.h"
#include "nought/io/strict_json.h"
#include "nought/models/gguf_reader.h"
#include "nought/nn/rope.h"

namespace nought {

namespace {

/// A number that is the same for all layers.
std::optional<int64_t> same_for_all(const MetadataReader& reader, std::string_view name) {
  std::vector<int64_t> all = reader.file.integers(reader.key(name));
  std::erase(all, 0);  // a layer that has none
  if (all.empty()) return std::nullopt;
  if (std::count(all.begin(), all.end(), all[0]) != std::ssize(all))
    reader.refuse("{} differs from layer to layer, which is not supported", reader.key(name));
  return all[0];
}

void read_sizes(MetadataReader& reader) {
  Json& json = reader.json;
  json["hidden_size"] = reader.needed("embedding_length");
  // Blocks that predict later tokens follow those of the model.
  json["num_hidden_layers"] = reader.needed("block_count") - reader.count("nextn_predict_layers").value_or(0);
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

Json yarn_scaling(const MetadataReader& reader) {
  const double factor = reader.number("rope.scaling.factor").value_or(1);
  Json scaling{{"rope_type", "yarn"},
               {"factor", factor},
               {"beta_fast", reader.number("rope.scaling.yarn_beta_fast").value_or(32)},
               {"beta_slow", reader.number("rope.scaling.yarn_beta_slow").value_or(1)},
               {"original_max_position_embeddings", reader.needed("rope.scaling.original_context_length")}};
  // What the file has is the rest of what llama.cpp multiplies by.
  const double temperature = yarn_mscale(factor, 1);
  const auto rest = static_cast<float>(reader.file.number(reader.key("rope.scaling.attn_factor")).value_or(1));
  if (rest != 1) {
    const double whole = rest * temperature, rounded = std::stod(fmt::format("{:.6g}", whole));
    scaling["attention_factor"] = static_cast<float>(rounded / temperature) == rest ? rounded : whole;
  }
  if (const auto truncate = reader.file.boolean(reader.key("rope.scaling.truncate"))) scaling["truncate"] = *truncate;
  return scaling;
}

void read_rope(MetadataReader& reader) {
  reader.json["rope_theta"] = reader.number("rope.freq_base").value_or(10000);
  const std::string* named = reader.file.text(reader.key("rope.scaling.type"));
  const std::string type = named == nullptr ? "none" : *named;
  const auto number = [&](const char* name) { return reader.number(name); };
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
    scaling = yarn_scaling(reader);
  } else if (type != "none") {
    reader.refuse("the rotary scaling \"{}\" is not read", excerpt(type));
  }
  if (!scaling.empty()) reader.json["rope_scaling"] = scaling;
}

}  // namespace

ModelConfig gguf_config(const GgufFile& file) {
  const std::string* name = file.text("general.architecture");
  MetadataReader reader{.file = file, .architecture = name == nullptr ? "" : *name};
  if (name == nullptr) reader.refuse("has no general.architecture: it is no model");
  const std::span<const KnownArchitecture> all = read_architectures();
  const auto known = std::ranges::find(all, *name, &KnownArchitecture::name);
  if (known == all.end()) {
    std::vector<std::string_view> names;
    for (const KnownArchitecture& each : all) names.push_back(each.name);
    reader.refuse("the architecture \"{}\" is not read; read are {}", excerpt(*name), fmt::join(names, ", "));
  }
  read_sizes(reader);
  read_rope(reader);
  if (known->read != nullptr) known->read(reader);
  if (!reader.json.contains("model_type")) reader.json["model_type"] = known->family;
  return ModelConfig::from_json(reader.json, file.path().string());
}

}  // namespace nought
