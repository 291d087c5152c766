#include "nought/infer/generation_config.h"

#include "nought/base/error.h"
#include "nought/base/json.h"

namespace nought {

namespace {

namespace fs = std::filesystem;

std::optional<double> number_at(const Json& json, const char* key, const fs::path& file) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return std::nullopt;
  require<ConfigError>(found->is_number(), "{}: {}: expected a number, found {}", file.string(), key,
                       describe_json(*found));
  return found->get<double>();
}

}  // namespace

GenerationConfig read_generation_config(const fs::path& folder) {
  const fs::path file = folder / "generation_config.json";
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return {};
  const Json json = read_json_file(file.string());
  require<ConfigError>(json.is_object(), "{}: expected an object, found {}", file.string(), describe_json(json));
  GenerationConfig config{.repetition_penalty = number_at(json, "repetition_penalty", file)};
  if (json.value("do_sample", Json()) == false) {
    config.temperature = 0;
    return config;
  }
  config.temperature = number_at(json, "temperature", file);
  config.top_p = number_at(json, "top_p", file);
  config.min_p = number_at(json, "min_p", file);
  if (const auto top_k = number_at(json, "top_k", file)) config.top_k = static_cast<int64_t>(*top_k);
  SamplingParameters parameters;
  parameters.temperature = config.temperature.value_or(parameters.temperature);
  parameters.top_k = config.top_k.value_or(parameters.top_k);
  parameters.top_p = config.top_p.value_or(parameters.top_p);
  parameters.min_p = config.min_p.value_or(parameters.min_p);
  parameters.repetition_penalty = config.repetition_penalty.value_or(parameters.repetition_penalty);
  try {
    parameters.validate();
  } catch (const ConfigError& error) {
    fail<ConfigError>("{}: {}", file.string(), error.what());
  }
  return config;
}

}  // namespace nought
