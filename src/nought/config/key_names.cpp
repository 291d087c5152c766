#include "nought/config/key_names.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "nought/base/text.h"
#include "nought/config/key_rules.h"
#include "nought/config/run_config.h"

namespace nought {

namespace {

/// What other programs, and people, call a key.
constexpr auto kOtherNames = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"lr", "training.learning_rate"},
    {"max_lr", "training.learning_rate"},
    {"batch_size", "training.per_device_train_batch_size"},
    {"train_batch_size", "training.per_device_train_batch_size"},
    {"micro_batch_size", "training.per_device_train_batch_size"},
    {"eval_batch_size", "training.per_device_eval_batch_size"},
    {"epochs", "training.num_train_epochs"},
    {"num_epochs", "training.num_train_epochs"},
    {"steps", "training.max_steps"},
    {"num_steps", "training.max_steps"},
    {"train_steps", "training.max_steps"},
    {"max_iters", "training.max_steps"},
    {"warmup", "training.warmup_steps"},
    {"lr_warmup_steps", "training.warmup_steps"},
    {"num_warmup_steps", "training.warmup_steps"},
    {"grad_accum", "training.gradient_accumulation_steps"},
    {"grad_accumulation_steps", "training.gradient_accumulation_steps"},
    {"gradient_accumulation", "training.gradient_accumulation_steps"},
    {"grad_clip", "training.max_grad_norm"},
    {"clip_grad", "training.max_grad_norm"},
    {"gradient_clipping", "training.max_grad_norm"},
    {"scheduler", "training.lr_scheduler_type"},
    {"lr_scheduler", "training.lr_scheduler_type"},
    {"optimizer", "training.optim"},
    {"wd", "training.weight_decay"},
    {"beta1", "training.adam_beta1"},
    {"beta2", "training.adam_beta2"},
    {"eps", "training.adam_epsilon"},
    {"adam_eps", "training.adam_epsilon"},
    {"dtype", "training.bf16"},
    {"torch_dtype", "training.bf16"},
    {"precision", "training.bf16"},
    {"mixed_precision", "training.bf16"},
    {"log_steps", "training.logging_steps"},
    {"log_interval", "training.logging_steps"},
    {"save_interval", "training.save_steps"},
    {"eval_interval", "training.eval_steps"},
    {"out_dir", "training.output_dir"},
    {"output", "training.output_dir"},
    {"seq_len", "data.seq_length"},
    {"sequence_len", "data.seq_length"},
    {"sequence_length", "data.seq_length"},
    {"max_length", "data.seq_length"},
    {"max_seq_len", "data.seq_length"},
    {"max_seq_length", "data.seq_length"},
    {"model_max_length", "data.seq_length"},
    {"context_length", "data.seq_length"},
    {"cutoff_len", "data.seq_length"},
    {"block_size", "data.seq_length"},
    {"dataset", "data.files"},
    {"datasets", "data.files"},
    {"dataset_path", "data.files"},
    {"train_file", "data.files"},
    {"train_files", "data.files"},
    {"data_path", "data.files"},
    {"validation_file", "data.validation_files"},
    {"eval_files", "data.validation_files"},
    {"val_set_size", "data.validation_fraction"},
    {"text_column", "data.field"},
    {"dataset_text_field", "data.field"},
    {"template", "data.chat_template"},
    {"tokenizer_name", "data.tokenizer"},
    {"tokenizer_name_or_path", "data.tokenizer"},
    {"model_name", "model"},
    {"model_path", "model"},
    {"model_name_or_path", "model"},
    {"base_model", "model"},
    {"tensor_parallel_size", "training.parallelism_config.tp_size"},
    {"tensor_model_parallel_size", "training.parallelism_config.tp_size"},
    {"context_parallel_size", "training.parallelism_config.cp_size"},
    {"sequence_parallel_size", "training.parallelism_config.sp_size"},
    {"ulysses_sequence_parallel_size", "training.parallelism_config.sp_size"},
    {"pipeline_parallel_size", "training.parallelism_config.pp_size"},
    {"pipeline_model_parallel_size", "training.parallelism_config.pp_size"},
    {"partition_method", "training.parallelism_config.pipeline_parallel_partition"},
    {"expert_parallel_size", "training.parallelism_config.ep_size"},
    {"expert_model_parallel_size", "training.parallelism_config.ep_size"},
    {"moe_expert_capacity_factor", "training.moe_capacity_factor"},
    {"capacity_factor", "training.moe_capacity_factor"},
    {"drop_tokens", "training.moe_drop_tokens"},
    {"ds_config", "deepspeed"},
    {"deepspeed_config", "deepspeed"},
    {"stage", "deepspeed.zero_optimization.stage"},
    {"zero_stage", "deepspeed.zero_optimization.stage"},
});

std::string_view last_part(std::string_view path) { return path.substr(path.rfind('.') + 1); }

/// The names that a section has; "" is the file itself.
std::vector<std::string> names_of_section(const std::vector<KeyInfo>& keys, const std::string& section) {
  std::vector<std::string> names;
  const std::string prefix = section.empty() ? "" : section + ".";
  for (const KeyInfo& key : keys)
    if (key.path.starts_with(prefix))
      names.push_back(key.path.substr(prefix.size(), key.path.find_first_of(".[", prefix.size()) - prefix.size()));
  return names;
}

}  // namespace

std::string meant_key(const std::string& name) {
  for (const auto& [other, path] : kOtherNames)
    if (other == name) return std::string(path);
  std::string only;
  for (const KeyInfo& key : list_keys<RunConfig>()) {
    if (last_part(key.path) != name || key.path.find('[') != std::string::npos) continue;
    if (!only.empty()) return "";
    only = key.path;
  }
  return only;
}

namespace {

/// Compares the keys of a RUN.json, section by section, with those that are known.
class KeyNames {
 public:
  explicit KeyNames(const Origins& origins) : origins_(origins) {}

  /// `path` is the section's in the list of keys ("data.sources[]"), `at` that in the file ("data.sources[1]").
  void check(Json& section, const std::string& path, const std::string& at) {
    const std::vector<std::string> names = names_of_section(keys_, path);
    if (names.empty() || !section.is_object()) return;
    for (auto it = section.begin(); it != section.end();) {
      const bool known = std::find(names.begin(), names.end(), it.key()) != names.end();
      if (!known && is_note(it.key())) {
        it = section.erase(it);
        continue;
      }
      known ? check_inside(*it, join_path(path, it.key()), join_path(at, it.key())) : refuse(it.key(), names, at);
      ++it;
    }
  }

  std::vector<std::string> mistakes() && { return std::move(mistakes_); }

 private:
  void check_inside(Json& value, const std::string& path, const std::string& at) {
    check(value, path, at);
    for (size_t i = 0; value.is_array() && i < value.size(); ++i)
      check(value[i], path + "[]", fmt::format("{}[{}]", at, i));
  }

  void refuse(const std::string& key, const std::vector<std::string>& names, const std::string& at) {
    const std::string meant = meant_key(key);
    const std::string advice = meant.empty() ? did_you_mean(key, names) : fmt::format(" (did you mean \"{}\"?)", meant);
    mistakes_.push_back(fmt::format("{}: unknown key{}", origins_.place(join_path(at, key)), advice));
  }

  const std::vector<KeyInfo> keys_ = list_keys<RunConfig>();
  const Origins& origins_;
  std::vector<std::string> mistakes_;
};

}  // namespace

std::vector<std::string> mistaken_keys(Json& run, const Origins& origins) {
  KeyNames names(origins);
  names.check(run, "", "");
  return std::move(names).mistakes();
}

}  // namespace nought
