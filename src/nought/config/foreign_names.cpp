#include "nought/config/foreign_names.h"

#include <algorithm>
#include <array>
#include <utility>

#include "nought/config/key_names.h"
#include "nought/config/run_config.h"
#include "nought/config/training_rules.h"

namespace nought {

namespace {

using Pair = std::pair<std::string_view, std::string_view>;

/// Keys of adapters, quantized models and preferences, which peft, bitsandbytes and TRL gave them.
constexpr auto kCommonNames = std::to_array<Pair>({
    {"model_name_or_path", "model"},
    {"lora_r", "adapter.r"},
    {"lora_rank", "adapter.r"},
    {"lora_dim", "adapter.r"},
    {"lora_alpha", "adapter.lora_alpha"},
    {"lora_dropout", "adapter.lora_dropout"},
    {"lora_target_modules", "adapter.target_modules"},
    {"lora_modules_to_save", "adapter.modules_to_save"},
    {"modules_to_save", "adapter.modules_to_save"},
    {"additional_target", "adapter.modules_to_save"},
    {"use_rslora", "adapter.use_rslora"},
    {"peft_use_rslora", "adapter.use_rslora"},
    {"use_dora", "adapter.use_dora"},
    {"peft_use_dora", "adapter.use_dora"},
    {"load_in_4bit", "quantization_config.load_in_4bit"},
    {"load_in_8bit", "quantization_config.load_in_8bit"},
    {"bnb_4bit_quant_type", "quantization_config.bnb_4bit_quant_type"},
    {"bnb_4bit_use_double_quant", "quantization_config.bnb_4bit_use_double_quant"},
    {"use_bnb_nested_quant", "quantization_config.bnb_4bit_use_double_quant"},
    {"ref_model", "alignment.ref_model"},
    {"reward_model", "alignment.reward_model"},
    {"ref_model_name_or_path", "alignment.ref_model"},
    {"teacher_model_name_or_path", "alignment.teacher_model"},
    {"train_iters", "training.max_steps"},
    {"lr_decay_style", "training.lr_scheduler_type"},
    {"model_parallel_size", "training.parallelism_config.tp_size"},
    {"pipe_parallel_size", "training.parallelism_config.pp_size"},
});

constexpr auto kAxolotlNames = std::to_array<Pair>({
    {"sequence_len", "data.seq_length"},
    {"tokenizer_config", "data.tokenizer"},
    {"tokens", "data.add_special_tokens"},
    {"micro_batch_size", "training.per_device_train_batch_size"},
    {"dpo_beta", "alignment.beta"},
    {"rl_beta", "alignment.beta"},
    {"orpo_alpha", "alignment.beta"},
    {"dpo_label_smoothing", "alignment.label_smoothing"},
    {"kto_desirable_weight", "alignment.desirable_weight"},
    {"kto_undesirable_weight", "alignment.undesirable_weight"},
    {"cpo_alpha", "alignment.cpo_alpha"},
    {"simpo_gamma", "alignment.simpo_gamma"},
    {"sequence_parallel_degree", "training.parallelism_config.cp_size"},
    {"dp_shard_size", "training.parallelism_config.dp_shard_size"},
    {"dp_replicate_size", "training.parallelism_config.dp_replicate_size"},
});

constexpr auto kLlamaFactoryNames = std::to_array<Pair>({
    {"val_size", "data.validation_fraction"},
    {"pref_beta", "alignment.beta"},
    {"dpo_label_smoothing", "alignment.label_smoothing"},
    {"simpo_gamma", "alignment.simpo_gamma"},
    {"kto_chosen_weight", "alignment.desirable_weight"},
    {"kto_rejected_weight", "alignment.undesirable_weight"},
    {"neat_packing", "data.separate_documents"},
});

constexpr std::string_view kAttention = "attention is one kernel that keeps no scores";
constexpr std::string_view kKernels = "every kernel is compiled already, and fused where that pays";
constexpr std::string_view kCache = "data is read anew, or once by nought tokenize";
constexpr std::string_view kLoggers = "metrics.jsonl has the metrics; training.report_to tensorboard writes events";
constexpr std::string_view kFolder = "the folder of the model says it";
constexpr std::string_view kRanks = "--ranks and --hostfile say where ranks run";
constexpr std::string_view kEvaluation = "validation gives loss, perplexity and bits per byte";

constexpr auto kNotNeeded = std::to_array<Pair>({
    {"trust_remote_code", "no code of a model's folder is run"},
    {"model_type", kFolder},
    {"tokenizer_type", kFolder},
    {"base_model_config", kFolder},
    {"is_llama_derived_model", kFolder},
    {"is_mistral_derived_model", kFolder},
    {"is_falcon_derived_model", kFolder},
    {"is_qwen_derived_model", kFolder},
    {"tokenizer_use_fast", "there is one implementation"},
    {"use_fast_tokenizer", "there is one implementation"},
    {"tokenizer_legacy", kFolder},
    {"model_revision", "a model is what its folder holds"},
    {"hf_use_auth_token", "nothing is fetched or uploaded"},
    {"use_auth_token", "nothing is fetched or uploaded"},
    {"strict", "unknown keys are always refused"},
    {"debug", "a value that is not finite is always found and named"},
    {"torch_dtype", "weights are read as they are; training.bf16 says what computes"},
    {"dtype", "weights are read as they are; training.bf16 says what computes"},
    {"attn_implementation", kAttention},
    {"flash_attention", kAttention},
    {"flash_attn", kAttention},
    {"sdp_attention", kAttention},
    {"eager_attention", kAttention},
    {"xformers_attention", kAttention},
    {"flex_attention", kAttention},
    {"flash_attn_cross_entropy", kKernels},
    {"flash_attn_rms_norm", kKernels},
    {"flash_attn_fuse_qkv", kKernels},
    {"flash_attn_fuse_mlp", kKernels},
    {"flex_attn_compile_kwargs", kKernels},
    {"lora_mlp_kernel", kKernels},
    {"lora_qkv_kernel", kKernels},
    {"lora_o_kernel", kKernels},
    {"plugins", kKernels},
    {"cut_cross_entropy", kKernels},
    {"chunked_cross_entropy", kKernels},
    {"enable_liger_kernel", kKernels},
    {"use_unsloth", kKernels},
    {"use_unsloth_gc", kKernels},
    {"unsloth_cross_entropy_loss", kKernels},
    {"fused_layernorm", kKernels},
    {"dataset_prepared_path", kCache},
    {"dataset_processes", kCache},
    {"dataset_num_proc", kCache},
    {"preprocessing_num_workers", kCache},
    {"overwrite_cache", kCache},
    {"push_dataset_to_hub", kCache},
    {"lazy_preprocess", kCache},
    {"shuffle_merged_datasets", "samples are always shuffled, by training.seed"},
    {"pad_to_sequence_len", "samples are always full"},
    {"pad_to_max_length", "samples are always full"},
    {"pad_token", "samples are always full"},
    {"eval_sample_packing", "validation packs as training does"},
    {"eval_packing", "validation packs as training does"},
    {"packing_strategy", "documents stand one behind the other"},
    {"lora_on_cpu", "merging an adapter needs no second model"},
    {"lora_fan_in_fan_out", kFolder},
    {"lora_task_type", "the task is that of the data"},
    {"plot_loss", "nought report shows the curves"},
    {"print_loss", "every line of output has the loss"},
    {"eval_table_size", kEvaluation},
    {"eval_max_new_tokens", kEvaluation},
    {"eval_causal_lm_metrics", kEvaluation},
    {"use_tensorboard", kLoggers},
    {"enable_tensorboard", kLoggers},
    {"tensorboard_path", kLoggers},
    {"log_with", kLoggers},
    {"log_completions", "training.sample_prompt shows what the model writes"},
    {"use_env", kRanks},
    {"auto_resume_from_checkpoints", "nought train --resume says it"},
    {"save_first_step", "nought doctor tries the output folder before a run"},
    {"data_output_path", kCache},
    {"dataset_dir", "its dataset_info.json was looked into"},
    {"dataset_exact_deduplication", "nought data dedup says it"},
    {"finetuning_type", "the section adapter says it"},
    {"use_peft", "the section adapter says it"},
    {"train_type", "the section adapter says it"},
    {"only_optimize_lora", "an adapter is all that is trained"},
    {"world_size", kRanks},
    {"num_processes", kRanks},
    {"num_machines", kRanks},
    {"num_gpus", kRanks},
    {"num_nodes", kRanks},
    {"nnodes", kRanks},
    {"nproc_per_node", kRanks},
    {"node_rank", kRanks},
    {"machine_rank", kRanks},
    {"gpu_ids", kRanks},
    {"include", kRanks},
    {"exclude", kRanks},
    {"hostfile", kRanks},
    {"launcher", kRanks},
    {"multi_gpu", kRanks},
    {"standalone", kRanks},
    {"master_port", kRanks},
    {"master_addr", kRanks},
    {"main_process_port", kRanks},
    {"main_process_ip", kRanks},
    {"rdzv_backend", kRanks},
    {"rdzv_endpoint", kRanks},
    {"rdzv_id", kRanks},
    {"same_network", kRanks},
    {"distributed_backend", kRanks},
    {"dynamo_backend", kKernels},
    {"num_cpu_threads_per_process", "OMP_NUM_THREADS says it"},
    {"bind_cores_to_rank", "ranks get cores of their own"},
    {"deepspeed_activation_checkpointing", "training.recompute says it"},
    {"use_deepspeed", "the section deepspeed says it"},
});

constexpr std::string_view kOwnRollouts = "ranks write answers themselves, with the weights that they train";

constexpr std::array kLoggerPrefixes{"wandb_", "mlflow_", "comet_", "swanlab_", "trackio_", "ray_"};

constexpr std::string_view kNotFetched = "data sets of the hub are not fetched: give --data FILE";
constexpr std::string_view kOwnConfig = "\"model\" may be the content of a config.json, for random weights";

constexpr auto kMissing = std::to_array<Pair>({
    {"early_stopping_patience", "runs end by max_steps or num_train_epochs; load_best_model_at_end exports the best"},
    {"num_layers", kOwnConfig},
    {"hidden_size", kOwnConfig},
    {"ffn_hidden_size", kOwnConfig},
    {"num_attention_heads", kOwnConfig},
    {"max_position_embeddings", kOwnConfig},
    {"config_name", kOwnConfig},
    {"config_overrides", kOwnConfig},
    {"max_prompt_length", "prompts with their answers are cut at alignment.max_length, or at data.seq_length"},
    {"max_samples", "all samples are trained on: give fewer files, or max_steps"},
    {"max_train_samples", "all samples are trained on: give fewer files, or max_steps"},
    {"max_eval_samples", "all of validation_files or validation_fraction is validated with"},
    {"data_split", "a file is used whole"},
    {"mask_history", "every answer of a conversation is learned"},
    {"train_on_inputs", "prompts of conversations are not learned; write them as text to learn them"},
    {"train_on_prompt", "prompts of conversations are not learned; write them as text to learn them"},
    {"special_tokens", "tokens are those of the tokenizer's folder; data.add_special_tokens adds some"},
    {"added_tokens_overrides", "tokens are those of the tokenizer's folder; data.add_special_tokens adds some"},
    {"eot_tokens", "what ends a turn is said by the chat template"},
    {"loraplus_lr_ratio", "training.parameter_groups gives lora_B a rate of its own"},
    {"loraplus_lr_embedding", "training.parameter_groups gives parameters a rate of their own"},
    {"rope_scaling", "the config.json of the model says it"},
    {"ema_decay", "an average of the weights is not available"},
    {"relora", "ReLoRA is not available"},
    {"use_galore", "GaLore is not available"},
    {"use_apollo", "APOLLO is not available"},
    {"use_badam", "BAdam is not available"},
    {"mixture_of_depths", "mixture of depths is not available"},
    {"freeze_trainable_layers", "training.freeze and training.trainable name what is trained by patterns"},
    {"num_layers_to_freeze", "training.freeze and training.trainable name what is trained by patterns"},
    {"lora_layers_to_transform", "adapter.target_modules may be a pattern that names layers"},
    {"dataset_config_name", kNotFetched},
    {"dataset_configs", kNotFetched},
    {"dataset_config", kNotFetched},
    {"dataset_mixture", kNotFetched},
    {"dataset_train_split", "a file is used whole"},
    {"dataset_test_split", "a file is used whole; data.validation_files names others"},
    {"reward_funcs", "alignment.reward_funcs has rules, models and programs, no functions of Python"},
    {"lora_module_name", "adapter.target_modules names layers, or is a pattern"},
    {"offload", "write deepspeed.zero_optimization.offload_optimizer and offload_param"},
});

template <class Table>
std::optional<std::string_view> find_in(const Table& table, std::string_view key) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const Pair& each) { return each.first == key; });
  return found == table.end() ? std::nullopt : std::optional(found->second);
}

/// Whether the section training knows a key, be it that the key has no effect.
bool is_of_training(const std::string& key) {
  const auto arguments = training_arguments();
  if (std::find(arguments.begin(), arguments.end(), key) != arguments.end()) return true;
  for (const auto& [alias, name] : training_aliases())
    if (alias == key) return true;
  for (const KeyRule& rule : training_rules())
    if (rule.path == key) return true;
  static const std::vector<KeyInfo> keys = list_keys<RunConfig>();
  const std::string path = "training." + key;
  return std::any_of(keys.begin(), keys.end(), [&](const KeyInfo& each) { return each.path == path; });
}

}  // namespace

std::string path_of_foreign_key(ForeignFormat format, const std::string& key) {
  std::optional<std::string_view> path;
  if (format == ForeignFormat::axolotl) path = find_in(kAxolotlNames, key);
  if (format == ForeignFormat::llama_factory) path = find_in(kLlamaFactoryNames, key);
  if (!path) path = find_in(kCommonNames, key);
  if (path) return std::string(*path);
  return is_of_training(key) ? "training." + key : meant_key(key);
}

std::optional<std::string_view> why_not_needed(const std::string& key) {
  if (const auto why = find_in(kNotNeeded, key)) return why;
  for (const char* prefix : kLoggerPrefixes)
    if (key.starts_with(prefix)) return kLoggers;
  if (key.starts_with("liger_")) return kKernels;
  if (key.starts_with("vllm_") || key == "use_vllm") return kOwnRollouts;
  return std::nullopt;
}

std::optional<std::string_view> why_missing(const std::string& key) { return find_in(kMissing, key); }

}  // namespace nought
