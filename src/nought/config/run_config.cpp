#include "nought/config/run_config.h"

#include <algorithm>
#include <iterator>

#include "nought/config/ds_config.h"

namespace nought {

namespace {

/// Replaces the path of a ds_config.json by what the file holds.
void load_deepspeed_file(Json& json, Origins& origins) {
  const auto section = json.find("deepspeed");
  if (section == json.end() || !section->is_string()) return;
  const auto path = section->get<std::string>();
  *section = read_json_file(path);
  origins.add_file("deepspeed", path);
}

/// Whether a key holds text: a string, or the path that `model` and `deepspeed` may be.
bool holds_text(const std::string& path) {
  if (path == "model" || path == "deepspeed") return true;
  const auto is = [&](const std::string& prefix, const std::vector<KeyInfo>& keys) {
    static const std::string text = visiting::type_name(visiting::Tag<std::string>());
    return std::any_of(keys.begin(), keys.end(),
                       [&](const KeyInfo& key) { return prefix + key.path == path && key.type == text; });
  };
  return is("", list_keys<RunConfig>()) || is("deepspeed.", list_keys<DsConfig>());
}

void apply(Json& json, Override override, Origins& origins) {
  if (override.path.starts_with("deepspeed.")) load_deepspeed_file(json, origins);
  // A folder may be called 123 or true; what is in quotes, null or an object is JSON all the same.
  const bool scalar = override.value.is_number() || override.value.is_boolean();
  if (scalar && holds_text(override.path)) override.value = override.text;
  origins.add_override(apply_override(json, override));
}

/// The keys by which fine-tuning programs ask for adapters.
constexpr std::string_view kAdapterKeys[]{"peft_config", "peft_type",    "use_peft",    "use_lora",
                                          "lora",        "adapter",      "lora_r",      "lora_rank",
                                          "lora_alpha",  "lora_dropout", "lora_target", "lora_target_modules"};

/// ConfigError if the file asks for LoRA or another adapter, of which an unknown key would say nothing.
void refuse_adapters(const Json& section, const std::string& path, const Origins& origins) {
  if (!section.is_object()) return;
  for (const auto& [key, value] : section.items())
    require<ConfigError>(std::find(std::begin(kAdapterKeys), std::end(kAdapterKeys), key) == std::end(kAdapterKeys),
                         "{}: adapters (LoRA) are not available: remove the key; training.freeze and "
                         "training.trainable choose what is trained",
                         origins.place(join_path(path, key)));
}

}  // namespace

RunConfig make_run_config(Json json, const std::string& name, std::span<const std::string> overrides) {
  Origins origins(name);
  if (json.is_null()) json = Json::object();
  require<ConfigError>(json.is_object(), "{}: expected an object, found {}", name, describe_json(json));
  for (const std::string& text : overrides) apply(json, parse_override(text), origins);
  load_deepspeed_file(json, origins);

  refuse_adapters(json, "", origins);
  if (json.contains("training")) refuse_adapters(json["training"], "training", origins);
  auto config = from_json<RunConfig>(json, origins);
  config.origins = std::move(origins);
  require<ConfigError>(config.model.is_null() || config.model.is_string() || config.model.is_object(),
                       "{}: expected a folder's path or an object, found {}", config.origins.place("model"),
                       describe_json(config.model));
  return config;
}

RunConfig load_run_config(const std::string& path, std::span<const std::string> overrides) {
  if (path.empty()) return make_run_config(Json::object(), "the command line", overrides);
  return make_run_config(read_json_file(path), path, overrides);
}

}  // namespace nought
