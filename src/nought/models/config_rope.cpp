// Rotary positions in a config.json: transformers 4 keeps rope_theta and rope_scaling, 5 puts both in rope_parameters.
#include <cmath>

#include <fmt/format.h>

#include "nought/base/json.h"
#include "nought/models/config_common.h"

namespace nought {

namespace {

constexpr std::pair<const char*, RopeKind> kRopeKinds[] = {
    // The first name of each is the one that is written; "su" is phi3's older name.
    {"default", RopeKind::plain},  {"linear", RopeKind::linear},     {"llama3", RopeKind::llama3},
    {"yarn", RopeKind::yarn},      {"longrope", RopeKind::longrope}, {"su", RopeKind::longrope},
    {"dynamic", RopeKind::dynamic}};

RopeKind read_kind(ConfigReader& rope, const ModelConfig& config) {
  const std::string type = rope.text("rope_type").value_or(rope.text("type").value_or("default"));
  rope.ignore({"type"});
  // Phi-3's first configs called its own scaling "yarn".
  if (config.family == "phi3" && type == "yarn") return RopeKind::longrope;
  std::string known;
  for (const auto& [name, kind] : kRopeKinds) {
    if (type == name) return kind;
    known += fmt::format("{}\"{}\"", known.empty() ? "" : ", ", name);
  }
  fail<ConfigError>("{}: the rope type \"{}\" is not supported, known are {}", rope.source(), type, known);
}

double needed_positive(ConfigReader& rope, const char* key) {
  require<ConfigError>(rope.number(key).has_value(), "{}: {} is missing, this rope type needs it", rope.source(), key);
  return read_positive(rope, key, 1);
}

std::optional<double> optional_positive(ConfigReader& rope, const char* key) {
  if (!rope.value(key)) return std::nullopt;
  return needed_positive(rope, key);
}

std::vector<double> read_factors(ConfigReader& rope, const char* key, int64_t count) {
  const Json* list = rope.value(key);
  require<ConfigError>(list && list->is_array() && static_cast<int64_t>(list->size()) == count,
                       "{}: {} must be a list of {} numbers, one for each pair", rope.source(), key, count);
  std::vector<double> factors;
  for (const Json& factor : *list) {
    require<ConfigError>(factor.is_number() && factor.get<double>() > 0, "{}: {} holds {}, expected positive numbers",
                         rope.source(), key, factor.dump());
    factors.push_back(factor.get<double>());
  }
  return factors;
}

int64_t rotary_dim(ConfigReader& reader, const ModelConfig& config, double fraction) {
  require<ConfigError>(fraction > 0 && fraction <= 1, "{}: partial_rotary_factor is {}, expected a number in (0, 1]",
                       reader.source(), fraction);
  const int64_t dim = static_cast<int64_t>(static_cast<double>(config.head_dim) * fraction);
  require<ConfigError>(dim > 0 && dim % 2 == 0,
                       "{}: {} of head_dim {} are rotated, rotary positions need an even number of them",
                       reader.source(), dim, config.head_dim);
  return dim;
}

/// Where a family keeps the length before extension: in the config itself or beside the factors.
int64_t read_original(ConfigReader& reader, ConfigReader& rope, const ModelConfig& config) {
  const int64_t otherwise = config.family == "phi3" ? 4096 : config.max_positions;
  const int64_t outer = reader.size("original_max_position_embeddings", otherwise, kMaxRows);
  return rope.size("original_max_position_embeddings", outer, kMaxRows);
}

void read_scaling(ConfigReader& reader, ConfigReader& rope, const ModelConfig& config, RopeOptions& options) {
  switch (options.kind) {
    case RopeKind::plain:
      break;
    case RopeKind::linear:
      options.factor = needed_positive(rope, "factor");
      break;
    case RopeKind::dynamic:
      options.factor = needed_positive(rope, "factor");
      options.original_max_positions = config.max_positions;
      require<ConfigError>(
          options.rotary_dim > 2 && options.factor >= 1,
          "{}: the rope type \"dynamic\" needs a factor of 1 or more, and more than 2 rotated values of "
          "a head",
          rope.source());
      break;
    case RopeKind::llama3:
      options.factor = needed_positive(rope, "factor");
      options.low_freq_factor = needed_positive(rope, "low_freq_factor");
      options.high_freq_factor = needed_positive(rope, "high_freq_factor");
      options.original_max_positions = rope.size("original_max_position_embeddings", 0, kMaxRows);
      require<ConfigError>(options.low_freq_factor <= options.high_freq_factor,
                           "{}: low_freq_factor {} is above high_freq_factor {}", rope.source(),
                           options.low_freq_factor, options.high_freq_factor);
      break;
    case RopeKind::yarn:
      options.factor = needed_positive(rope, "factor");
      options.original_max_positions = read_original(reader, rope, config);
      options.beta_fast = read_positive(rope, "beta_fast", 32);
      options.beta_slow = read_positive(rope, "beta_slow", 1);
      options.truncate = rope.boolean("truncate").value_or(true);
      options.attention_factor = optional_positive(rope, "attention_factor");
      if (rope.value("mscale")) options.mscale = rope.non_negative("mscale", 0);
      if (rope.value("mscale_all_dim")) options.mscale_all_dim = rope.non_negative("mscale_all_dim", 0);
      break;
    case RopeKind::longrope: {
      const bool known = config.family == "phi3" || reader.value("original_max_position_embeddings");
      options.original_max_positions = read_original(reader, rope, config);
      options.factor = static_cast<double>(config.max_positions) / static_cast<double>(options.original_max_positions);
      if (!known && rope.value("factor")) options.factor = needed_positive(rope, "factor");
      rope.ignore({"factor"});
      options.attention_factor = optional_positive(rope, "attention_factor");
      options.short_factors = read_factors(rope, "short_factor", options.rotary_dim / 2);
      options.long_factors = read_factors(rope, "long_factor", options.rotary_dim / 2);
      break;
    }
  }
}

}  // namespace

RopeOptions read_rope_parameters(ConfigReader& reader, ModelConfig& config, const Json& parameters,
                                 const std::string& name, RopeOptions options) {
  ConfigReader rope(parameters, fmt::format("{}: {}", reader.source(), name));
  options.kind = read_kind(rope, config);
  options.theta = rope.number("rope_theta").value_or(options.theta);
  if (const auto fraction = rope.number("partial_rotary_factor"))
    options.rotary_dim = rotary_dim(reader, config, *fraction);
  read_scaling(reader, rope, config, options);
  if (config.family == "ministral3") {
    if (const auto beta = rope.number("llama_4_scaling_beta"))
      config.query_scale = QueryScale{.beta = *beta, .length = read_original(reader, rope, config)};
    rope.ignore({"max_position_embeddings", "original_max_position_embeddings"});
  }
  for (const std::string& other : rope.unknown_keys()) {
    config.notes.push_back(fmt::format("{}.{} has no effect with this rope type", name, other));
  }
  return options;
}

void read_rope(ConfigReader& reader, ModelConfig& config, double default_theta, double default_fraction) {
  config.positions = PositionKind::rope;
  config.rope.theta = reader.number("rope_theta").value_or(default_theta);
  config.rope.rotary_dim =
      rotary_dim(reader, config, reader.number("partial_rotary_factor").value_or(default_fraction));
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* found = reader.value(key);
    if (!found) continue;
    // gemma3 of transformers 5: one set for each kind of layer.
    if (found->is_object() && found->contains("full_attention")) {
      config.rope = read_rope_parameters(reader, config, (*found)["full_attention"],
                                         fmt::format("{}.full_attention", key), config.rope);
      RopeOptions local{.rotary_dim = config.rope.rotary_dim};
      if (found->contains("sliding_attention"))
        config.local_rope = read_rope_parameters(reader, config, (*found)["sliding_attention"],
                                                 fmt::format("{}.sliding_attention", key), local);
    } else {
      config.rope = read_rope_parameters(reader, config, *found, key, config.rope);
    }
  }
  require<ConfigError>(std::isfinite(config.rope.theta) && config.rope.theta > 0,
                       "{}: rope_theta is {}, expected a positive number", reader.source(), config.rope.theta);
}

double rotary_fraction(const ModelConfig& config) {
  const auto whole = static_cast<double>(config.head_dim), rotated = static_cast<double>(config.rope.rotary_dim);
  const double fraction = rotated / whole;
  return fraction * whole < rotated ? std::nextafter(fraction, 1.0) : fraction;
}

void write_rotary_fraction(const ModelConfig& config, OrderedJson& json) {
  json["partial_rotary_factor"] = rotary_fraction(config);
}

void write_rope(const ModelConfig& config, OrderedJson& json) {
  const RopeOptions& rope = config.rope;
  json["rope_theta"] = rope.theta;
  if (rope.rotary_dim != config.head_dim) write_rotary_fraction(config, json);
  json["rope_scaling"] = nullptr;
  if (rope.kind == RopeKind::plain) return;
  OrderedJson scaling;
  for (const auto& [name, kind] : kRopeKinds)
    if (kind == rope.kind && !scaling.contains("rope_type")) scaling["rope_type"] = name;
  if (rope.kind == RopeKind::longrope) {
    scaling["short_factor"] = rope.short_factors;
    scaling["long_factor"] = rope.long_factors;
    const double extension =
        static_cast<double>(config.max_positions) / static_cast<double>(rope.original_max_positions);
    if (rope.factor == extension) {
      json["original_max_position_embeddings"] = rope.original_max_positions;
    } else {
      scaling["factor"] = rope.factor;
    }
    if (config.family == "phi3") {  // its validation in transformers 4 wants these three keys alone
      scaling["type"] = "longrope";
      scaling.erase("rope_type");
    }
  } else {
    scaling["factor"] = rope.factor;
    if (rope.kind != RopeKind::linear && rope.kind != RopeKind::dynamic)
      scaling["original_max_position_embeddings"] = rope.original_max_positions;
  }
  if (rope.kind == RopeKind::llama3) {
    scaling["low_freq_factor"] = rope.low_freq_factor;
    scaling["high_freq_factor"] = rope.high_freq_factor;
  }
  if (rope.kind == RopeKind::yarn) {
    scaling["beta_fast"] = rope.beta_fast;
    scaling["beta_slow"] = rope.beta_slow;
    if (!rope.truncate) scaling["truncate"] = false;
    if (rope.mscale) scaling["mscale"] = *rope.mscale;
    if (rope.mscale_all_dim) scaling["mscale_all_dim"] = *rope.mscale_all_dim;
  }
  if (rope.attention_factor) scaling["attention_factor"] = *rope.attention_factor;
  json["rope_scaling"] = scaling;
}

}  // namespace nought
