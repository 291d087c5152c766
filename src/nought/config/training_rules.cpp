#include "nought/config/training_rules.h"

#include <algorithm>
#include <array>

#include "nought/base/error.h"

namespace nought {

namespace {

using enum KeyStatus;

constexpr auto kArguments = std::to_array<std::string_view>({
    "output_dir",
    "per_device_train_batch_size",
    "num_train_epochs",
    "max_steps",
    "learning_rate",
    "lr_scheduler_type",
    "lr_scheduler_kwargs",
    "warmup_steps",
    "optim",
    "optim_args",
    "weight_decay",
    "adam_beta1",
    "adam_beta2",
    "adam_epsilon",
    "optim_target_modules",
    "gradient_accumulation_steps",
    "average_tokens_across_devices",
    "max_grad_norm",
    "label_smoothing_factor",
    "bf16",
    "fp16",
    "bf16_full_eval",
    "fp16_full_eval",
    "tf32",
    "activation_checkpointing",
    "activation_checkpointing_kwargs",
    "gradient_checkpointing",
    "gradient_checkpointing_kwargs",
    "torch_compile",
    "torch_compile_backend",
    "torch_compile_mode",
    "use_liger_kernel",
    "liger_kernel_config",
    "use_cache",
    "neftune_noise_alpha",
    "torch_empty_cache_steps",
    "auto_find_batch_size",
    "logging_strategy",
    "logging_steps",
    "logging_first_step",
    "log_on_each_node",
    "logging_nan_inf_filter",
    "include_num_input_tokens_seen",
    "log_level",
    "log_level_replica",
    "disable_tqdm",
    "report_to",
    "run_name",
    "project",
    "trackio_space_id",
    "trackio_bucket_id",
    "trackio_static_space_id",
    "eval_strategy",
    "eval_steps",
    "eval_delay",
    "per_device_eval_batch_size",
    "prediction_loss_only",
    "eval_on_start",
    "eval_do_concat_batches",
    "eval_use_gather_object",
    "eval_accumulation_steps",
    "include_for_metrics",
    "batch_eval_metrics",
    "save_only_model",
    "save_strategy",
    "save_steps",
    "save_on_each_node",
    "save_total_limit",
    "enable_jit_checkpoint",
    "push_to_hub",
    "hub_token",
    "hub_private_repo",
    "hub_model_id",
    "hub_strategy",
    "hub_always_push",
    "hub_revision",
    "load_best_model_at_end",
    "metric_for_best_model",
    "greater_is_better",
    "ignore_data_skip",
    "restore_callback_states_from_checkpoint",
    "full_determinism",
    "seed",
    "data_seed",
    "use_cpu",
    "accelerator_config",
    "parallelism_config",
    "dataloader_drop_last",
    "dataloader_num_workers",
    "dataloader_pin_memory",
    "dataloader_persistent_workers",
    "dataloader_prefetch_factor",
    "dataloader_multiprocessing_context",
    "dataloader_in_order",
    "remove_unused_columns",
    "label_names",
    "train_sampling_strategy",
    "length_column_name",
    "ddp_find_unused_parameters",
    "ddp_bucket_cap_mb",
    "ddp_broadcast_buffers",
    "ddp_static_graph",
    "ddp_backend",
    "ddp_timeout",
    "fsdp",
    "fsdp_config",
    "deepspeed",
    "debug",
    "skip_memory_metrics",
    "do_train",
    "do_eval",
    "do_predict",
    "resume_from_checkpoint",
    "local_rank",
});

/// Fields that have another name here, and that name.
constexpr auto kAliases = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"activation_checkpointing", "gradient_checkpointing"},
    {"activation_checkpointing_kwargs", "gradient_checkpointing_kwargs"},
    {"evaluation_strategy", "eval_strategy"},
    {"per_gpu_train_batch_size", "per_device_train_batch_size"},
    {"per_gpu_eval_batch_size", "per_device_eval_batch_size"},
    {"tiled_mlp_num_shards", "tiled_mlp"},
});

// As TrainingArguments.to_dict() writes them.
constexpr std::string_view kAcceleratorDefaults =
    R"(null | {"split_batches": false, "dispatch_batches": null, "even_batches": true, "use_seedable_sampler": true, )"
    R"("non_blocking": false, "gradient_accumulation_kwargs": null})";
constexpr std::string_view kFsdpDefaults =
    R"(null | {} | {"min_num_params": 0, "xla": false, "xla_fsdp_v2": false, "xla_fsdp_grad_ckpt": false})";
constexpr std::string_view kNotCompiled = "every kernel is compiled already";
constexpr std::string_view kEvalDtype = "validation runs in the run's dtype";
constexpr std::string_view kMetrics =
    "metrics.jsonl is always written; deepspeed.tensorboard and deepspeed.csv_monitor "
    "write for other programs";
constexpr std::string_view kLossOnly = "validation gives loss, perplexity and bits per byte";
constexpr std::string_view kNoHub = "nothing is uploaded: training.output_dir is what to upload";
constexpr std::string_view kMapped = "samples are read from files that are mapped into memory";
constexpr std::string_view kPacked = "every batch is whole: documents are packed";
constexpr std::string_view kColumns = "data.format and data.field say what is read of each line";
constexpr std::string_view kNoDdp = "there is no DistributedDataParallel";
constexpr std::string_view kStage = "write deepspeed.zero_optimization.stage: 3 is full_shard, 2 is shard_grad_op";
constexpr std::string_view kCommands = "commands say it: nought train, nought eval";
constexpr std::string_view kLaunched = "--ranks, mpirun or srun say it";
constexpr std::string_view kDevice = "--device says where ranks compute";
constexpr std::string_view kNoDevice = "there is no such device";

// The first accepted value is that of transformers.
constexpr auto kTrainingRules = std::to_array<KeyRule>({
    {"optim_target_modules", "null", refused,
     "GaLore and APOLLO are not available; training.trainable chooses parameters"},
    {"average_tokens_across_devices", "true", no_effect, "a loss is the mean over all targets of all ranks"},
    {"label_smoothing_factor", "0", refused, "label smoothing is not available"},
    {"bf16_full_eval", "false", no_effect, kEvalDtype},
    {"fp16_full_eval", "false", no_effect, kEvalDtype},
    {"tf32", "null", no_effect, "CPUs have no TF32", "products of fp32 values are computed in fp32"},
    {"gradient_checkpointing_kwargs", "null", no_effect, "recomputation has one implementation"},
    {"torch_compile", "false", no_effect, kNotCompiled},
    {"torch_compile_backend", "null", no_effect, kNotCompiled},
    {"torch_compile_mode", "null", no_effect, kNotCompiled},
    {"use_liger_kernel", "false", no_effect, "the head and its loss are one operation already"},
    {"liger_kernel_config", "null", no_effect, "the head and its loss are one operation already"},
    {"use_cache", "false", no_effect, "training needs no cache, and generation always has one"},
    {"neftune_noise_alpha", "null", refused, "noise on embeddings is not available"},
    {"torch_empty_cache_steps", "null", no_effect, "an arena gives each step the same memory"},
    {"auto_find_batch_size", "false", no_effect, "`nought plan` names what fits into training.device_memory"},
    {"logging_strategy", "\"steps\"", no_effect, "lines are printed every training.logging_steps updates"},
    {"logging_first_step", "false | true", no_effect, "the first step is always printed"},
    {"log_on_each_node", "true", no_effect, "rank 0 prints"},
    {"logging_nan_inf_filter", "true", no_effect, "training.on_nonfinite says what happens"},
    {"include_num_input_tokens_seen", "\"no\" | true | false | \"all\" | \"non_padding\"", no_effect,
     "metrics.jsonl has the tokens of every step"},
    {"log_level", "\"passive\"", no_effect, "there is one level"},
    {"log_level_replica", "\"warning\"", no_effect, "rank 0 prints"},
    {"disable_tqdm", "null | false | true", no_effect, "the live line is drawn on terminals only"},
    {"project", "\"huggingface\"", no_effect, kMetrics},
    {"trackio_space_id", "null | \"trackio\"", no_effect, kMetrics},
    {"trackio_bucket_id", "null", no_effect, kMetrics},
    {"trackio_static_space_id", "null", no_effect, kMetrics},
    {"eval_delay", "0", no_effect, "training.eval_strategy says when to validate"},
    {"prediction_loss_only", "false", no_effect, kLossOnly},
    {"eval_on_start", "false", no_effect, "`nought eval` measures a model before it is trained"},
    {"eval_do_concat_batches", "true", no_effect, kLossOnly},
    {"eval_use_gather_object", "false", no_effect, kLossOnly},
    {"eval_accumulation_steps", "null", no_effect, kLossOnly},
    {"include_for_metrics", "[]", no_effect, kLossOnly},
    {"batch_eval_metrics", "false", no_effect, kLossOnly},
    {"save_only_model", "false", no_effect, "checkpoints always resume; the export at the end holds the weights alone"},
    {"save_on_each_node", "false", no_effect, "checkpoints go to one folder that all ranks see"},
    {"enable_jit_checkpoint", "false | true", no_effect, "SIGTERM saves before the run ends"},
    {"push_to_hub", "false", no_effect, kNoHub},
    {"hub_token", "null | \"<HUB_TOKEN>\"", no_effect, kNoHub},
    {"hub_private_repo", "null", no_effect, kNoHub},
    {"hub_model_id", "null", no_effect, kNoHub},
    {"hub_strategy", "\"every_save\"", no_effect, kNoHub},
    {"hub_always_push", "false", no_effect, kNoHub},
    {"hub_revision", "null", no_effect, kNoHub},
    {"ignore_data_skip", "false", no_effect, "a resumed run goes on with the samples of its next step"},
    {"restore_callback_states_from_checkpoint", "false", no_effect, "there are no callbacks"},
    {"full_determinism", "false | true", no_effect, "every run is deterministic"},
    {"data_seed", "null", no_effect, "training.seed decides the order of the data, too"},
    {"use_cpu", "false | true", no_effect, kDevice},
    {"accelerator_config", kAcceleratorDefaults, no_effect, "samples follow from seed, step and rank"},
    {"dataloader_drop_last", "false | true", no_effect, kPacked},
    {"dataloader_num_workers", "0", no_effect, kMapped},
    {"dataloader_pin_memory", "true | false", no_effect, kMapped},
    {"dataloader_persistent_workers", "false", no_effect, kMapped},
    {"dataloader_prefetch_factor", "null", no_effect, kMapped},
    {"dataloader_multiprocessing_context", "null", no_effect, kMapped},
    {"dataloader_in_order", "true", no_effect, "the order of samples follows from seed and step"},
    {"remove_unused_columns", "true | false", no_effect, kColumns},
    {"label_names", "null", no_effect, kColumns},
    {"train_sampling_strategy", "\"random\"", refused, "samples are packed and shuffled"},
    {"length_column_name", "\"length\"", no_effect, kPacked},
    {"ddp_find_unused_parameters", "null | false", no_effect, kNoDdp},
    {"ddp_bucket_cap_mb", "null", no_effect, "deepspeed.zero_optimization.reduce_bucket_size says it"},
    {"ddp_broadcast_buffers", "null", no_effect, kNoDdp},
    {"ddp_static_graph", "null | false", no_effect, kNoDdp},
    {"ddp_backend", "null | \"mpi\"", no_effect, "ranks talk over MPI", "--collectives says how GPUs talk"},
    {"fsdp", "null | \"\" | [] | false", refused, kStage},
    {"fsdp_config", kFsdpDefaults, no_effect, kStage},
    {"deepspeed", "null", refused, "write it beside \"training\", not in it"},
    {"debug", "null | \"\" | []", no_effect, "a value that is not finite is always found and named"},
    {"skip_memory_metrics", "true | false", no_effect, "memory is always measured"},
    {"do_train", "false | true", no_effect, kCommands},
    {"do_eval", "false | true", no_effect, kCommands},
    {"do_predict", "false | true", no_effect, kCommands},
    {"local_rank", "-1 | 0", no_effect, kLaunched},

    // Fields of transformers 4 that are gone or have another name.
    {"overwrite_output_dir", "false", no_effect, "`nought train --overwrite` says it"},
    {"save_safetensors", "true", no_effect, "weights are written as safetensors"},
    {"group_by_length", "false", refused, "samples are packed and shuffled"},
    {"adafactor", "false", refused, "Adafactor is not available; training.optim lists what is"},
    {"no_cuda", "false | true", no_effect, kDevice},
    {"use_mps_device", "false", no_effect, kNoDevice},
    {"use_ipex", "false", no_effect, kNotCompiled},
    {"jit_mode_eval", "false", no_effect, kNotCompiled},
    {"torchdynamo", "null", no_effect, kNotCompiled},
    {"fp16_opt_level", "\"O1\"", no_effect, "training.fp16 computes in half precision with fp32 master weights"},
    {"fp16_backend", "\"auto\"", no_effect, "there is one implementation"},
    {"half_precision_backend", "\"auto\"", no_effect, "there is one implementation"},
    {"include_inputs_for_metrics", "false", no_effect, kLossOnly},
    {"include_tokens_per_second", "false | true", no_effect, "every line has the tokens per second"},
    {"use_legacy_prediction_loop", "false | true", no_effect, kLossOnly},
    {"past_index", "-1", no_effect, "training has no past states"},
    {"split_batches", "null | false", no_effect, "samples follow from seed, step and rank"},
    {"dispatch_batches", "null", no_effect, "samples follow from seed, step and rank"},
    {"tpu_num_cores", "null", no_effect, kNoDevice},
    {"tpu_metrics_debug", "false", no_effect, kNoDevice},
    {"ray_scope", "\"last\"", no_effect, "there is no search over hyperparameters"},
    {"mp_parameters", "null | \"\"", no_effect, "SageMaker is not available"},
    {"fsdp_min_num_params", "0", no_effect, kStage},
    {"fsdp_transformer_layer_cls_to_wrap", "null", no_effect, kStage},
    {"push_to_hub_model_id", "null", no_effect, kNoHub},
    {"push_to_hub_organization", "null", no_effect, kNoHub},
    {"push_to_hub_token", "null | \"<PUSH_TO_HUB_TOKEN>\"", no_effect, kNoHub},
});

/// Axolotl says by one key whether the MLP is tiled, and by another one in how many tiles.
void rewrite_tiles(Json& training) {
  const Json tiled = training.value("tiled_mlp", Json());
  if (!tiled.is_boolean()) return;
  const Json tiles = training.value("tiled_mlp_num_shards", Json());
  training.erase("tiled_mlp_num_shards");
  training["tiled_mlp"] = !tiled.get<bool>() ? Json(1) : tiles.is_null() ? Json("auto") : tiles;
}

/// The mistake of a file that wants the CPU, where the command line wants GPUs; "" if it does not.
std::string contradiction_of_cpu(const Json& training, const Origins& origins) {
  for (const char* key : {"use_cpu", "no_cuda"})
    if (training.value(key, Json()) == true)
      return fmt::format("{} = true contradicts --device cuda: leave one of them out",
                         origins.place(join_path("training", key)));
  return "";
}

/// Names and values that mean here what another key says.
void rewrite(Json& training, const Origins& origins) {
  rewrite_tiles(training);
  for (const auto& [alias, name] : kAliases) {
    const auto found = training.find(alias);
    if (found == training.end()) continue;
    const Json value = *found;
    training.erase(found);
    Json& here = training[std::string(name)];
    require<ConfigError>(here.is_null() || value.is_null() || here == value,
                         "{} = {} contradicts {} = {}: leave one out", origins.place(join_path("training", alias)),
                         value.dump(), origins.place(join_path("training", name)), here.dump());
    if (here.is_null()) here = value;
  }
  const Json warmup = training.value("warmup_steps", Json());
  if (warmup.is_number_float() && 0 < warmup.get<double>() && warmup.get<double>() < 1 &&
      !training.contains("warmup_ratio")) {
    training["warmup_ratio"] = warmup;
    training.erase("warmup_steps");
  }
}

}  // namespace

std::span<const std::string_view> training_arguments() { return kArguments; }

std::span<const std::pair<std::string_view, std::string_view>> training_aliases() { return kAliases; }

std::span<const KeyRule> training_rules() { return kTrainingRules; }

std::vector<std::string> apply_training_rules(Json& training, const Origins& origins,
                                              std::vector<std::string>& warnings, bool on_gpu) {
  std::vector<std::string> mistakes;
  if (!training.is_object()) return mistakes;
  rewrite(training, origins);
  if (std::string mistake = on_gpu ? contradiction_of_cpu(training, origins) : ""; !mistake.empty())
    mistakes.push_back(std::move(mistake));
  for (const KeyRule& rule : kTrainingRules) {
    const auto found = training.find(rule.path);
    if (found == training.end()) continue;
    const bool hidden = found->is_string() && found->get_ref<const std::string&>().starts_with('<');  // by to_dict()
    const bool secret = rule.path.ends_with("_token") && !found->is_null() && !hidden;
    Judgement judgement =
        judge(secret ? Json("...") : *found, rule, origins.place(join_path("training", rule.path)), on_gpu);
    if (!judgement.mistake.empty()) mistakes.push_back(std::move(judgement.mistake));
    if (!judgement.warning.empty()) warnings.push_back(std::move(judgement.warning));
    training.erase(found);
  }
  return mistakes;
}

}  // namespace nought
