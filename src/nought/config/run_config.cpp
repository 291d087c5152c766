#include "nought/config/run_config.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/ranges.h>

#include "nought/base/text.h"
#include "nought/config/accelerate.h"
#include "nought/config/ds_config.h"
#include "nought/config/key_names.h"
#include "nought/config/run_paths.h"
#include "nought/config/training_rules.h"
#include "nought/config/yaml.h"
#include "nought/io/files.h"

namespace nought {

namespace {

/// ConfigError if a text holds a byte 0, where the system would end a path: another file would be read or written than
/// the one that the config shows.
void refuse_zero_bytes(const Json& json, const std::string& path, const Origins& origins, int depth = 0) {
  constexpr int kDeepest = 64;
  require<ConfigError>(depth <= kDeepest, "{}: nests deeper than {} levels", origins.place(""), kDeepest);
  const auto refuse_in = [&](const std::string& text) {
    require<ConfigError>(text.find('\0') == std::string::npos,
                         "{}: \"{}\" holds a byte 0, which no path and no name has", origins.place(path),
                         one_line(text));
  };
  if (json.is_string()) refuse_in(json.get_ref<const std::string&>());
  if (!json.is_structured()) return;
  for (const auto& [key, value] : json.items()) {
    refuse_in(key);
    refuse_zero_bytes(value, json.is_array() ? path + "[" + key + "]" : join_path(path, key), origins, depth + 1);
  }
}

/// Puts the sizes of accelerate's mesh beside those of training. ConfigError if a size is given twice and differently.
void take_parallelism(Json& json, const Json& sizes, const std::string& file, Origins& origins) {
  if (sizes.empty()) return;
  Json& training = json["training"];
  if (training.is_null()) training = Json::object();
  Json& section = training.is_object() ? training["parallelism_config"] : training;
  if (section.is_null()) section = Json::object();
  if (!section.is_object()) return;  // which is refused with all that is wrong
  for (const auto& [name, size] : sizes.items()) {
    const std::string key = "training.parallelism_config." + name;
    Json& own = section[name];
    require<ConfigError>(own.is_null() || own == size, "{} = {} contradicts {} = {}: make them equal, or remove one",
                         accelerate_place(file, name), size.dump(), origins.place(key), own.dump());
    if (!own.is_null()) continue;
    own = size;
    origins.add_file(key, accelerate_place(file, name));
  }
}

/// Replaces the path of a ds_config.json, or of a config of accelerate, by what the file says.
void load_deepspeed_file(Json& json, RunConfig& config) {
  const auto section = json.find("deepspeed");
  if (section == json.end() || !section->is_string()) return;
  const auto path = section->get<std::string>();
  const bool is_yaml = path.ends_with(".yaml") || path.ends_with(".yml");
  *section = is_yaml ? parse_yaml(read_text(path), path) : read_json_file(path);
  config.origins.add_file("deepspeed", path);
  refuse_zero_bytes(*section, "deepspeed", config.origins);
  if (!is_accelerate_config(*section)) return;
  AccelerateConfig accelerate = read_accelerate_config(*section, path, config.origins);
  *section = std::move(accelerate.deepspeed);
  take_parallelism(json, accelerate.parallelism, path, config.origins);
  config.warnings.insert(config.warnings.end(), accelerate.warnings.begin(), accelerate.warnings.end());
  config.accelerate_processes = accelerate.num_processes;
}

/// Whether a key holds text: a string, or the path that `model`, `adapter` and `deepspeed` may be.
bool holds_text(const std::string& path) {
  if (path == "model" || path == "deepspeed" || path == "adapter" || path == "peft_config") return true;
  const auto is = [&](const std::string& prefix, const std::vector<KeyInfo>& keys) {
    static const std::string text = visiting::type_name(visiting::Tag<std::string>());
    return std::any_of(keys.begin(), keys.end(),
                       [&](const KeyInfo& key) { return prefix + key.path == path && key.type == text; });
  };
  return is("", list_keys<RunConfig>()) || is("deepspeed.", list_keys<DsConfig>());
}

void apply(Json& json, Override override, RunConfig& config) {
  if (override.path.starts_with("deepspeed.")) load_deepspeed_file(json, config);
  // A folder may be called 123 or true; what is in quotes, null or an object is JSON all the same.
  const bool scalar = override.value.is_number() || override.value.is_boolean();
  if (scalar && holds_text(override.path)) override.value = override.text;
  config.origins.add_override(apply_override(json, override));
}

/// What other programs do and this one does not: the keys that ask for it, of which "unknown key" would say nothing.
struct Missing {
  std::string_view what;
  std::vector<std::string_view> keys;
};
const std::vector<Missing>& missing_features() {
  static const std::vector<Missing> all{
      {"an adapter is a section of the file, with peft's keys: \"adapter\": {\"r\": 16, \"lora_alpha\": 32, "
       "\"target_modules\": \"all-linear\"}; remove this key",
       {"peft", "peft_type", "use_peft", "use_lora", "lora", "lora_r", "lora_rank", "lora_alpha", "lora_dropout",
        "lora_target", "lora_target_modules"}},
      {"a quantized base (QLoRA) is a section of the file, with transformers' keys: \"quantization_config\": "
       "{\"load_in_4bit\": true, \"bnb_4bit_quant_type\": \"nf4\"}; remove this key",
       {"load_in_4bit", "load_in_8bit", "quantization", "quantization_bit", "bnb_4bit_compute_dtype",
        "bnb_4bit_quant_type", "bnb_4bit_use_double_quant", "use_4bit", "use_8bit", "use_qlora"}},
      {"samples that keep whole documents together are not available: documents always stand one behind the other and "
       "are cut into samples: remove the key; data.separate_documents keeps them from attending to each other",
       {"packing", "packing_strategy", "sample_packing", "eval_packing"}},
      {"training by preference is a section of the file, with TRL's keys: \"alignment\": {\"method\": \"dpo\", "
       "\"beta\": 0.1}; its methods are dpo, orpo, cpo and kto; remove this key",
       {"dpo", "dpo_beta", "kto", "orpo", "orpo_beta", "cpo", "simpo", "simpo_gamma", "ref_model", "pref_loss",
        "loss_type"}},
      {"training by reward is a section of the file, with TRL's keys: \"alignment\": {\"method\": \"grpo\", "
       "\"reward_funcs\": [...]}; its methods are grpo, rloo, ppo and reward; remove this key",
       {"grpo", "rloo", "ppo", "reward_model", "reward_funcs", "rl"}}};
  return all;
}

/// Likewise of the section alignment.
const std::vector<Missing>& missing_of_alignment() {
  static const std::vector<Missing> all{
      {"a mix of pretraining text into PPO is not available: remove the key; kl_coef keeps the model near its "
       "reference",
       {"ptx", "ptx_coef", "pretrain_coef", "unsup_coef", "gamma_ptx"}},
      {"an average of the weights (EMA) is not available: remove the key; training.load_best_model_at_end exports the "
       "best checkpoint",
       {"ema", "ema_decay", "enable_ema"}},
      {"episodes are answers here: training.num_train_epochs counts passes over the prompts, and training.max_steps "
       "steps; remove the key",
       {"total_episodes"}},
      {"the policy begins with \"model\": remove the key", {"sft_model_path", "model_name_or_path"}}};
  return all;
}

/// ConfigError if the file asks for what is not there.
void refuse_missing(const Json& section, const std::string& path, const Origins& origins,
                    const std::vector<Missing>& missing) {
  if (!section.is_object()) return;
  for (const auto& [key, value] : section.items()) {
    if (value.is_null() || value == false) continue;
    for (const Missing& each : missing)
      require<ConfigError>(std::find(each.keys.begin(), each.keys.end(), key) == each.keys.end(), "{}: {}",
                           origins.place(join_path(path, key)), each.what);
  }
}

/// ConfigError for transformers' schedules that follow a metric.
void refuse_schedule(const Json& training, const Origins& origins) {
  const auto type = training.is_object() ? training.find("lr_scheduler_type") : training.end();
  if (type == training.end() || (*type != "reduce_lr_on_plateau" && *type != "greedy")) return;
  fail<ConfigError>(
      "{} = {} is not available: here the rate of an update follows from its number alone, so that runs "
      "resume with the same rates; take cosine_with_min_lr or warmup_stable_decay",
      origins.place("training.lr_scheduler_type"), type->get<std::string>());
}

/// One ConfigError with every unknown key and refused argument of the whole file, so that one run tells all of them.
void require_no_mistakes(Json& json, RunConfig& read) {
  const Origins& origins = read.origins;
  std::vector<std::string> mistakes;
  if (json.contains("training")) mistakes = apply_training_rules(json["training"], origins, read.warnings, read.on_gpu);
  for (std::string& mistake : mistaken_keys(json, origins)) mistakes.push_back(std::move(mistake));
  if (mistakes.empty()) return;
  try {
    if (json.contains("deepspeed")) read_ds_config(json["deepspeed"], origins, read.warnings, read.on_gpu);
  } catch (const ConfigError& error) {
    mistakes.emplace_back(error.what());
  }
  fail<ConfigError>("{}", fmt::join(mistakes, "; "));
}

}  // namespace

RunConfig make_run_config(Json json, const std::string& name, std::span<const std::string> overrides,
                          std::vector<std::string> warnings, bool on_gpu) {
  RunConfig read;
  read.on_gpu = on_gpu;
  read.origins = Origins(name);
  read.warnings = std::move(warnings);
  if (json.is_null()) json = Json::object();
  require<ConfigError>(json.is_object(), "{}: expected an object, found {}", name, describe_json(json));
  refuse_zero_bytes(json, "", read.origins);
  for (const std::string& text : overrides) {
    Override override = parse_override(text);
    refuse_zero_bytes(override.value, override.path, read.origins);
    apply(json, std::move(override), read);
  }
  load_deepspeed_file(json, read);

  refuse_missing(json, "", read.origins, missing_features());
  for (const char* section : {"training", "data"})
    if (json.contains(section)) refuse_missing(json[section], section, read.origins, missing_features());
  if (json.contains("alignment")) refuse_missing(json["alignment"], "alignment", read.origins, missing_of_alignment());
  if (json.contains("training")) refuse_schedule(json["training"], read.origins);
  require_no_mistakes(json, read);
  auto config = from_json<RunConfig>(json, read.origins);
  config.origins = std::move(read.origins);
  config.warnings = std::move(read.warnings);
  config.accelerate_processes = read.accelerate_processes;
  config.on_gpu = on_gpu;
  require<ConfigError>(config.model.is_null() || config.model.is_string() || config.model.is_object(),
                       "{}: expected a folder's path or an object, found {}", config.origins.place("model"),
                       describe_json(config.model));
  return config;
}

Json read_run_file(const std::string& path, std::vector<std::string>& warnings) {
  std::error_code ignored;
  require<IoError>(
      !std::filesystem::is_directory(path, ignored),
      "{}: is a folder; expected a RUN.json, a file that says model, data and training: `nought init` writes "
      "one, and examples/ has more",
      path);
  Json run = read_json_file(path);
  anchor_paths(run, path, warnings);
  return run;
}

RunConfig load_run_config(const std::string& path, std::span<const std::string> overrides, bool on_gpu) {
  if (path.empty()) return make_run_config(Json::object(), "the command line", overrides, {}, on_gpu);
  std::vector<std::string> warnings;
  Json run = read_run_file(path, warnings);
  return make_run_config(std::move(run), path, overrides, std::move(warnings), on_gpu);
}

}  // namespace nought
