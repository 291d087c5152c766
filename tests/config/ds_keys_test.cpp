// Every key that DeepSpeed documents is known, and its documented default is accepted.
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/config/config_reference.h"
#include "nought/config/ds_config.h"

namespace nought::ds_keys_test {
namespace {

using testing::IsEmpty;

/// A key and its documented default as JSON. Keys of things that are off by being absent have null.
struct Documented {
  const char *key, *fallback;
};

/// The keys of one section of ds_config.json, as DeepSpeed 0.19 documents them and reads them.
struct DocumentedSection {
  const char* path;
  std::vector<Documented> keys;
};

const DocumentedSection kSections[] = {
    {"",
     {{"train_batch_size", "\"auto\""},
      {"train_micro_batch_size_per_gpu", "\"auto\""},
      {"gradient_accumulation_steps", "\"auto\""},
      {"communication_data_type", "null"},
      {"gradient_clipping", "1.0"},
      {"prescale_gradients", "false"},
      {"gradient_predivide_factor", "1.0"},
      {"gradient_allreduce_op", "\"mean\""},
      {"seq_parallel_communication_data_type", "\"fp32\""},
      {"sparse_gradients", "false"},
      {"sparse_attention", "null"},
      {"dataloader_drop_last", "false"},
      {"disable_allgather", "false"},
      {"managed_gradient_accumulation", "true"},
      {"fp32_allreduce", "false"},
      {"zero_allow_untested_optimizer", "false"},
      {"zero_force_ds_cpu_optimizer", "true"},
      {"use_data_before_expert_parallelism", "false"},
      {"graph_harvesting", "false"},
      {"grad_hooks", "true"},
      {"seed", "1234"},
      {"steps_per_print", "null"},
      {"wall_clock_breakdown", "false"},
      {"memory_breakdown", "false"},
      {"dump_state", "false"},
      {"datastates_ckpt", "null"}}},
    {"optimizer", {{"type", "\"AdamW\""}, {"legacy_fusion", "false"}}},
    {"optimizer.params",
     {{"lr", "1e-3"},
      {"betas", "[0.9, 0.999]"},
      {"eps", "1e-8"},
      {"weight_decay", "0"},
      {"adam_w_mode", "true"},
      {"torch_adam", "false"},
      {"amsgrad", "false"},
      {"fused", "false"},
      {"fp32_optimizer_states", "true"},
      {"max_coeff", "null"},
      {"min_coeff", "null"},
      {"bias_correction", "true"},
      {"momentum", "null"},
      {"dampening", "null"},
      {"nesterov", "null"},
      {"muon_lr", "null"},
      {"adam_lr", "null"},
      {"ns_method", "null"},
      {"freeze_step", "null"},
      {"cuda_aware", "false"},
      {"comm_backend_name", "null"},
      {"exp_avg_mask", "null"},
      {"var_freeze_step", "null"},
      {"var_update_scaler", "null"},
      {"local_step_scaler", "null"},
      {"local_step_clipper", "null"},
      {"coeff_beta", "null"},
      {"factor_max", "null"},
      {"factor_min", "null"},
      {"factor_threshold", "null"}}},
    {"scheduler", {{"type", "\"WarmupLR\""}}},
    {"scheduler.params",
     {{"warmup_min_lr", "0"},
      {"warmup_max_lr", "0.001"},
      {"warmup_num_steps", "1000"},
      {"warmup_type", "\"log\""},
      {"last_batch_iteration", "-1"},
      {"total_num_steps", "null"},
      {"warmup_min_ratio", "null"},
      {"cos_min_ratio", "null"},
      {"lr_range_test_min_lr", "null"},
      {"lr_range_test_step_size", "null"},
      {"lr_range_test_step_rate", "null"},
      {"lr_range_test_staircase", "null"},
      {"cycle_min_lr", "null"},
      {"cycle_max_lr", "null"},
      {"cycle_first_step_size", "null"},
      {"cycle_second_step_size", "null"},
      {"cycle_first_stair_count", "null"},
      {"cycle_second_stair_count", "null"},
      {"cycle_momentum", "null"},
      {"cycle_min_mom", "null"},
      {"cycle_max_mom", "null"},
      {"decay_step_size", "null"},
      {"decay_lr_rate", "null"},
      {"decay_mom_rate", "null"}}},
    {"fp16",
     {{"enabled", "false"},
      {"auto_cast", "false"},
      {"loss_scale", "0"},
      {"initial_scale_power", "16"},
      {"loss_scale_window", "1000"},
      {"hysteresis", "2"},
      {"consecutive_hysteresis", "false"},
      {"min_loss_scale", "1"},
      {"fp16_master_weights_and_grads", "false"}}},
    {"bf16",
     {{"enabled", "false"},
      {"immediate_grad_update", "false"},
      {"check_grad_overflow", "true"},
      {"bf16_master_weights_and_grads", "false"},
      {"bf16_optimizer_states", "false"}}},
    {"bfloat16", {{"enabled", "false"}}},
    {"amp", {{"enabled", "false"}, {"opt_level", "\"O1\""}}},
    {"torch_autocast", {{"enabled", "false"}, {"dtype", "\"bfloat16\""}, {"lower_precision_safe_modules", "[]"}}},
    {"data_types", {{"grad_accum_dtype", "null"}, {"param_dtype", "null"}, {"buffer_dtype", "null"}}},
    {"zero_optimization",
     {{"stage", "0"},
      {"contiguous_gradients", "true"},
      {"reduce_scatter", "true"},
      {"reduce_bucket_size", "5e8"},
      {"allgather_partitions", "true"},
      {"allgather_bucket_size", "5e8"},
      {"overlap_comm", "null"},
      {"load_from_fp32_weights", "true"},
      {"elastic_checkpoint", "false"},
      {"sub_group_size", "1e9"},
      {"round_robin_gradients", "false"},
      {"ignore_unused_parameters", "true"},
      {"legacy_stage1", "false"},
      {"pipeline_loading_checkpoint", "false"},
      {"memory_efficient_linear", "true"},
      {"override_module_apply", "true"},
      {"log_trace_cache_warnings", "false"},
      {"leaf_module", "null"},
      {"cpu_offload", "false"},
      {"cpu_offload_param", "false"},
      {"cpu_offload_params", "false"},
      {"cpu_offload_use_pin_memory", "false"},
      {"stage3_prefetch_bucket_size", "5e7"},
      {"prefetch_bucket_size", "5e7"},
      {"stage3_param_persistence_threshold", "1e5"},
      {"param_persistence_threshold", "1e5"},
      {"stage3_model_persistence_threshold", "9223372036854775807"},
      {"model_persistence_threshold", "9223372036854775807"},
      {"stage3_max_live_parameters", "1e9"},
      {"max_live_parameters", "1e9"},
      {"stage3_max_reuse_distance", "1e9"},
      {"max_reuse_distance", "1e9"},
      {"stage3_gather_16bit_weights_on_model_save", "false"},
      {"stage3_gather_fp16_weights_on_model_save", "false"},
      {"gather_16bit_weights_on_model_save", "false"},
      {"stage3_use_all_reduce_for_fetch_params", "false"},
      {"use_all_reduce_for_fetch_params", "false"},
      {"stage3_module_granularity_threshold", "0"},
      {"module_granularity_threshold", "0"},
      {"zero_hpz_partition_size", "1"},
      {"zero_quantized_weights", "false"},
      {"zero_quantized_nontrainable_weights", "false"},
      {"zero_quantized_gradients", "false"},
      {"mics_shard_size", "-1"},
      {"mics_hierarchical_params_gather", "false"},
      {"zenflow", "null"}}},
    {"zero_optimization.zeropp_loco_param", {{"err_beta", "0.8"}, {"reset_T", "1024"}}},
    {"zero_optimization.offload_param",
     {{"device", "\"none\""},
      {"nvme_path", "null"},
      {"buffer_count", "5"},
      {"buffer_size", "1e8"},
      {"max_in_cpu", "1e9"},
      {"pin_memory", "true"}}},
    {"zero_optimization.offload_optimizer",
     {{"device", "\"none\""},
      {"nvme_path", "null"},
      {"buffer_count", "4"},
      {"pin_memory", "true"},
      {"pipeline_read", "false"},
      {"pipeline_write", "false"},
      {"fast_init", "false"},
      {"ratio", "1.0"},
      {"super_offload", "false"},
      {"cpuadam_cores_perc", "0.8"}}},
    {"activation_checkpointing",
     {{"partition_activations", "false"},
      {"cpu_checkpointing", "false"},
      {"contiguous_memory_optimization", "false"},
      {"number_checkpoints", "null"},
      {"synchronize_checkpoint_boundary", "false"},
      {"profile", "false"}}},
    {"aio",
     {{"block_size", "1048576"},
      {"queue_depth", "8"},
      {"intra_op_parallelism", "1"},
      {"thread_count", "1"},
      {"num_threads", "1"},
      {"single_submit", "false"},
      {"overlap_events", "true"},
      {"use_gds", "false"}}},
    {"tensorboard", {{"enabled", "false"}, {"output_path", "\"\""}, {"job_name", "\"DeepSpeedJobName\""}}},
    {"csv_monitor", {{"enabled", "false"}, {"output_path", "\"\""}, {"job_name", "\"DeepSpeedJobName\""}}},
    {"wandb", {{"enabled", "false"}, {"group", "null"}, {"team", "null"}, {"project", "\"deepspeed\""}}},
    {"comet", {{"enabled", "false"}, {"workspace", "null"}, {"project", "null"}, {"samples_log_interval", "100"}}},
    {"flops_profiler",
     {{"enabled", "false"},
      {"recompute_fwd_factor", "0.0"},
      {"profile_step", "1"},
      {"module_depth", "-1"},
      {"top_modules", "1"},
      {"detailed", "true"},
      {"output_file", "null"}}},
    {"comms_logger",
     {{"enabled", "false"}, {"verbose", "false"}, {"prof_all", "true"}, {"debug", "false"}, {"prof_ops", "[]"}}},
    {"timers.throughput", {{"enabled", "true"}, {"synchronized", "true"}}},
    {"checkpoint",
     {{"tag_validation", "\"Warn\""},
      {"load_universal", "false"},
      {"use_node_local_storage", "false"},
      {"parallel_write.pipeline_stage", "false"},
      {"checkpoint_serialization", "true"},
      {"writer", "null"}}},
    {"nebula",
     {{"enabled", "false"},
      {"persistent_storage_path", "null"},
      {"persistent_time_interval", "100"},
      {"num_of_version_in_retention", "2"},
      {"enable_nebula_load", "true"},
      {"nebula_load_path", "null"}}},
    {"elasticity", {{"prefer_large_batch", "true"}}},
    {"autotuning",
     {{"enabled", "false"},
      {"fast", "true"},
      {"results_dir", "\"autotuning_results\""},
      {"exps_dir", "\"autotuning_exps\""},
      {"overwrite", "true"},
      {"metric", "\"throughput\""},
      {"metric_path", "null"},
      {"start_profile_step", "3"},
      {"end_profile_step", "5"},
      {"tuner_type", "\"gridsearch\""},
      {"tuner_early_stopping", "5"},
      {"tuner_num_trials", "50"},
      {"arg_mappings", "null"},
      {"max_train_batch_size", "null"},
      {"min_train_batch_size", "1"},
      {"max_train_micro_batch_size_per_gpu", "1024"},
      {"min_train_micro_batch_size_per_gpu", "1"},
      {"num_tuning_micro_batch_sizes", "3"},
      {"mp_size", "1"},
      {"model_info", "null"},
      {"model_info_path", "null"}}},
    {"compression_training",
     {{"row_pruning", "{}"},
      {"head_pruning", "{}"},
      {"channel_pruning", "{}"},
      {"layer_reduction", "{\"enabled\": false}"}}},
    {"compression_training.weight_quantization", {{"different_groups", "{}"}}},
    {"compression_training.weight_quantization.shared_parameters",
     {{"enabled", "false"},
      {"quantizer_kernel", "false"},
      {"schedule_offset", "0"},
      {"quantize_groups", "1"},
      {"quantize_verbose", "false"},
      {"quantization_type", "\"symmetric\""},
      {"rounding", "\"nearest\""},
      {"quantize_weight_in_forward", "false"}}},
    {"compression_training.weight_quantization.shared_parameters.fp16_mixed_quantize",
     {{"enabled", "false"}, {"quantize_change_ratio", "0.001"}}},
    {"compression_training.activation_quantization", {{"different_groups", "{}"}}},
    {"compression_training.activation_quantization.shared_parameters",
     {{"enabled", "false"},
      {"quantization_type", "\"symmetric\""},
      {"range_calibration", "\"dynamic\""},
      {"schedule_offset", "1000"}}},
    {"compression_training.sparse_pruning", {{"different_groups", "{}"}}},
    {"compression_training.sparse_pruning.shared_parameters",
     {{"enabled", "false"},
      {"method", "\"l1\""},
      {"schedule_offset", "1000"},
      {"schedule_offset_end", "1000"},
      {"schedule_offset_stride", "1"},
      {"block_pattern", "\"4x1\""},
      {"dense_ratio", "0.1"},
      {"excluded_modules", "[]"}}},
    {"quantize_training", {{"enabled", "false"}}},
    {"compile",
     {{"enabled", "false"},
      {"backend", "\"inductor\""},
      {"kwargs", "{}"},
      {"deepcompile", "false"},
      {"free_activation", "false"},
      {"free_activation_threshold", "10485760"},
      {"offload_activation", "false"},
      {"offload_activation_pin_memory", "true"},
      {"offload_opt_states", "false"},
      {"double_buffer", "true"},
      {"symmetric_memory", "false"},
      {"debug_log", "false"},
      {"offload_parameters", "false"},
      {"sync_before_reduce", "false"},
      {"sync_after_reduce", "false"},
      {"sync_before_allgather", "false"},
      {"sync_after_allgather", "false"},
      {"keep_int_input_tensors", "true"},
      {"keep_all_input_tensors", "false"},
      {"passes", "null"}}},
    {"eigenvalue",
     {{"enabled", "false"},
      {"verbose", "false"},
      {"max_iter", "100"},
      {"tol", "1e-2"},
      {"stability", "1e-6"},
      {"gas_boundary_resolution", "1"},
      {"layer_name", "\"bert.encoder.layer\""},
      {"layer_num", "0"}}},
    {"hybrid_engine",
     {{"enabled", "false"},
      {"max_out_tokens", "512"},
      {"inference_tp_size", "1"},
      {"release_inference_cache", "false"},
      {"pin_parameters", "true"},
      {"tp_gather_partition_size", "8"}}},
    {"pipeline",
     {{"stages", "\"auto\""},
      {"partition", "\"best\""},
      {"seed_layers", "false"},
      {"activation_checkpoint_interval", "0"},
      {"pipe_partitioned", "true"},
      {"grad_partitioned", "true"},
      {"use_reentrant", "true"}}},
    {"tensor_parallel",
     {{"autotp_size", "0"}, {"preset_model", "null"}, {"tp_overlap_comm", "false"}, {"partition_config", "null"}}},
    {"expert_parallel", {{"enabled", "false"}, {"expert_parallel_size", "1"}}},
    {"curriculum_learning",
     {{"enabled", "false"},
      {"curriculum_type", "\"seqlen\""},
      {"min_difficulty", "null"},
      {"max_difficulty", "null"},
      {"schedule_type", "null"},
      {"schedule_config", "{}"}}},
    {"data_efficiency",
     {{"enabled", "false"},
      {"seed", "1234"},
      {"data_sampling", "{\"enabled\": false, \"num_epochs\": 1000, \"num_workers\": 0}"},
      {"data_routing", "{\"enabled\": false, \"random_ltd\": {\"enabled\": false}}"}}},
    {"progressive_layer_drop", {{"enabled", "false"}, {"theta", "1.0"}, {"gamma", "0.001"}}},
};

struct Key {
  std::string path;
  Json fallback;
};

std::vector<Key> documented_keys() {
  std::vector<Key> keys;
  for (const DocumentedSection& section : kSections)
    for (const Documented& key : section.keys)
      keys.push_back({join_path(section.path, key.key), Json::parse(key.fallback)});
  return keys;
}

/// Whether the reference of all keys has the key, or a section as a whole that it belongs to.
bool has_verdict(std::string path, const std::set<std::string>& known) {
  constexpr std::string_view kOld = "bfloat16.";
  if (path.starts_with(kOld)) path.replace(0, kOld.size(), "bf16.");
  while (true) {
    if (known.contains(path) || known.contains(path + ".*")) return true;
    const size_t dot = path.rfind('.');
    if (dot == std::string::npos) return false;
    path.erase(dot);
  }
}

TEST(DsKeys, every_key_that_deepspeed_documents_has_a_verdict) {
  std::set<std::string> known;
  for (const ConfigEntry& entry : config_reference())
    if (entry.path.starts_with("deepspeed.")) known.insert(entry.path.substr(sizeof("deepspeed.") - 1));
  for (const Key& key : documented_keys()) EXPECT_TRUE(has_verdict(key.path, known)) << key.path;
  EXPECT_FALSE(has_verdict("zero_optimization.no_such_key", known));
}

TEST(DsKeys, every_documented_default_is_accepted_without_a_word) {
  for (const Key& key : documented_keys()) {
    Json json = Json::object();
    apply_override(json, {key.path, key.fallback});
    if (json.contains("optimizer")) json["optimizer"]["type"] = "AdamW";
    if (json.contains("scheduler")) json["scheduler"]["type"] = "WarmupLR";
    std::vector<std::string> warnings;
    EXPECT_NO_THROW(read_ds_config(json, Origins("ds.json"), warnings)) << key.path;
    EXPECT_THAT(warnings, IsEmpty()) << key.path;
  }
}

/// A file with one key, and the types that their sections need.
Json file_with(const std::string& path, const Json& value) {
  Json json = Json::object();
  apply_override(json, {path, value});
  if (json.contains("optimizer") && json["optimizer"].is_object()) json["optimizer"].emplace("type", "AdamW");
  if (json.contains("scheduler") && json["scheduler"].is_object()) json["scheduler"].emplace("type", "WarmupLR");
  return json;
}

/// What becomes of a file: the error, else the warnings, else nothing is said.
std::string said_of(const Json& file) {
  try {
    std::vector<std::string> warnings;
    read_ds_config(file, Origins("ds.json"), warnings);
    return warnings.empty() ? "" : warnings.front();
  } catch (const ConfigError& error) {
    return error.what();
  }
}

/// Whether the file's one key reaches the configuration.
bool is_kept(const Json& file, const std::string& path) {
  std::vector<std::string> warnings;
  const Json kept = to_json(read_ds_config(file, Origins("ds.json"), warnings));
  Json::json_pointer pointer;
  for (const std::string& part : split(path, '.')) pointer /= part;
  return kept.contains(pointer);
}

/// Values of every kind, none of which is a default.
const Json kValues[] = {true, false, 7, -3, 0.625, "x", {1, 2}, {{"x", 1}}};

TEST(DsKeys, no_value_of_an_implemented_key_is_passed_over) {
  for (const KeyInfo& key : list_keys<DsConfig>())
    for (const Json& value : kValues) {
      const Json file = file_with(key.path, value);
      EXPECT_TRUE(!said_of(file).empty() || is_kept(file, key.path)) << key.path << " = " << value;
    }
}

/// Where a key counts only if another one does, that one is set too.
std::string gate_of(const KeyRule& rule) {
  const std::string path(rule.path), section = path.substr(0, path.rfind('.'));
  if (path == "zero_optimization.cpu_offload_use_pin_memory")
    return "zero_optimization.offload_optimizer.super_offload";
  if (path == "zero_optimization.offload_optimizer.cpuadam_cores_perc") return section + ".super_offload";
  return (section.ends_with(".schedule_config") ? "curriculum_learning" : section) + ".enabled";
}

TEST(DsKeys, no_value_of_a_key_that_is_not_implemented_is_passed_over) {
  for (const KeyRule& rule : ds_key_rules()) {
    std::string path(rule.path);
    const bool is_free = path.ends_with(".*");
    if (is_free) path.replace(path.size() - 1, 1, "anything");
    if (rule.status == KeyStatus::enabled) {  // a section that counts where something in it is enabled
      EXPECT_THAT(said_of(file_with(path, {{"enabled", true}})), testing::HasSubstr("not supported")) << path;
      continue;
    }
    for (const Json& value : kValues) {
      Json file = file_with(path, value);
      if (rule.status == KeyStatus::gated) apply_override(file, {gate_of(rule), true});
      const bool is_default = judge(value, {rule.path, rule.defaults, KeyStatus::refused, "x"}, "").mistake.empty();
      const bool may_be_silent = is_default && rule.status != KeyStatus::gated;
      EXPECT_TRUE(may_be_silent || !said_of(file).empty()) << path << " = " << value;
    }
  }
}

TEST(DsKeys, auto_is_the_default_of_every_key) {
  std::vector<std::string> paths;
  for (const KeyInfo& key : list_keys<DsConfig>()) paths.push_back(key.path);
  for (const KeyRule& rule : ds_key_rules()) paths.emplace_back(rule.path);
  for (const std::string& path : paths) {
    if (path.ends_with(".type") || path.ends_with(".*")) continue;  // DeepSpeed takes types as they stand
    EXPECT_EQ(said_of(file_with(path, "auto")), "") << path;
  }
  EXPECT_EQ(said_of(file_with("zero_optimization.offload_param.buffer_size", "auto")), "");
  std::vector<std::string> warnings;
  const DsConfig config = read_ds_config(file_with("zero_optimization.stage", "auto"), Origins("ds.json"), warnings);
  EXPECT_FALSE(config.zero_optimization.stage.given);
}

TEST(DsKeys, an_unknown_key_of_the_file_is_warned_about_unless_it_is_near_to_a_known_one) {
  for (const char* key : {"log", "cuda_visible_devices", "comms_config", "monitor_config", "my_own_section"})
    for (const Json& value : kValues)
      EXPECT_EQ(said_of({{key, value}}),
                fmt::format("ds.json: deepspeed.{} is not a key of ds_config.json: not used, as in DeepSpeed", key));
  EXPECT_EQ(
      said_of({{"offload_optimizer", {{"device", "cpu"}}}}),
      "ds.json: deepspeed.offload_optimizer is not a key of ds_config.json: not used, as in DeepSpeed; it belongs "
      "into zero_optimization.offload_optimizer");
  EXPECT_EQ(said_of({{"zero_optimisation", {{"stage", 2}}}}),
            "ds.json: deepspeed.zero_optimisation: unknown key (did you mean \"zero_optimization\"?)");
  EXPECT_EQ(said_of({{"zero_optimization", {{"my_own_key", 2}}}}),
            "ds.json: deepspeed.zero_optimization.my_own_key: unknown key");
}

TEST(DsKeys, compiling_is_not_passed_over) {
  EXPECT_EQ(said_of({{"compile", {{"deepcompile", true}}}}),
            "ds.json: deepspeed.compile.deepcompile = true has no effect: every kernel is compiled already");
}

TEST(DsKeys, no_key_is_a_key_of_a_section_that_is_not_documented) {
  std::set<std::string> sections;
  for (const Key& key : documented_keys()) sections.insert(key.path.substr(0, key.path.find('.')));
  for (const KeyRule& rule : ds_key_rules())
    EXPECT_TRUE(sections.contains(std::string(rule.path.substr(0, rule.path.find('.'))))) << rule.path;
}

}  // namespace
}  // namespace nought::ds_keys_test
