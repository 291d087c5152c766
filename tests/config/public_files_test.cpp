// ds_config.json files in the manner of public ones, each with what becomes of it: templates of Trainer and accelerate,
// fine-tuning frameworks, tutorials. What they have in common is that their authors expect them to work.
#include <ostream>
#include <string>
#include <vector>

#include "support/resolved.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/config/accelerate.h"
#include "nought/config/yaml.h"

namespace nought::test::public_files_test {
namespace {

using ::testing::HasSubstr;

/// A file and its verdict. An empty `error`: it is accepted, and each of `warnings` is in a warning of its own, in the
/// order of the warnings; there are no others.
struct PublicFile {
  const char* name;
  const char* file;
  int zero_stage = 0;
  std::vector<const char*> warnings = {};
  const char* error = "";
};

void PrintTo(const PublicFile& file, std::ostream* out) { *out << file.name; }

constexpr const char* kTraining =
    R"({"max_steps": 100, "warmup_steps": 10, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 4,
        "learning_rate": 2e-5, "max_grad_norm": 1.0, "bf16": true})";

const PublicFile kFiles[] = {
    {"accelerate_zero1", R"({"zero_optimization": {"stage": 1, "reduce_bucket_size": 5e8}, "bf16": {"enabled": true},
        "gradient_accumulation_steps": "auto", "train_micro_batch_size_per_gpu": "auto", "train_batch_size": "auto"})",
     1},
    {"accelerate_zero2_writes_infinity",
     R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 4,
        "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "none", "nvme_path": null},
        "offload_param": {"device": "none", "nvme_path": null}, "stage3_gather_16bit_weights_on_model_save": false},
        "gradient_clipping": 1.0, "steps_per_print": Infinity, "bf16": {"enabled": true}, "fp16": {"enabled": false}})",
     2},
    {"accelerate_zero3_saves_whole_weights",
     R"({"zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}, "steps_per_print":
        Infinity, "bf16": {"enabled": true}, "fp16": {"enabled": false}, "zero_allow_untested_optimizer": true})",
     3},
    {"trainer_zero2_offload",
     R"({"bf16": {"enabled": "auto"}, "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps":
        "auto", "weight_decay": "auto"}}, "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto",
        "warmup_max_lr": "auto", "warmup_num_steps": "auto"}}, "zero_optimization": {"stage": 2, "offload_optimizer":
        {"device": "cpu", "pin_memory": true}, "allgather_partitions": true, "allgather_bucket_size": 2e8,
        "overlap_comm": true, "reduce_scatter": true, "reduce_bucket_size": 2e8, "contiguous_gradients": true},
        "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto", "wall_clock_breakdown": false})",
     2,
     {"offload_optimizer.device = \"cpu\" has no effect"}},
    {"trainer_zero3_offload_both",
     R"({"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu",
        "pin_memory": true}, "offload_param": {"device": "cpu", "pin_memory": true}, "overlap_comm": true,
        "contiguous_gradients": true, "sub_group_size": 1e9, "reduce_bucket_size": "auto",
        "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto",
        "stage3_max_live_parameters": 1e9, "stage3_max_reuse_distance": 1e9,
        "stage3_gather_16bit_weights_on_model_save": true}, "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto", "steps_per_print": 2000, "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto"})",
     3,
     {"offload_param.device", "offload_optimizer.device"}},
    {"trainer_zero3_auto_device_and_buckets",
     R"({"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3, "offload_param": {"device": "auto"},
        "offload_optimizer": {"device": "auto"}, "allgather_bucket_size": "auto", "reduce_bucket_size": "auto",
        "sub_group_size": "auto", "stage3_max_live_parameters": "auto", "stage3_max_reuse_distance": "auto"}})",
     3},
    {"the_old_name_of_bf16", R"({"bfloat16": {"enabled": true}, "zero_optimization": {"stage": 2}})", 2},
    {"names_without_stage3",
     R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 3, "max_live_parameters": 1e9, "max_reuse_distance":
        1e9, "prefetch_bucket_size": 5e7, "param_persistence_threshold": 1e5,
        "gather_16bit_weights_on_model_save": true}})",
     3},
    {"cpu_offload_of_old",
     R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "cpu_offload": true}})",
     2,
     {"cpu_offload = true has no effect"}},
    {"cpu_offload_param_of_old",
     R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 3, "cpu_offload_param": true}})",
     3,
     {"cpu_offload_param = true has no effect"}},
    {"notes_to_people",
     R"({"_comment": "for 8 x 80 GB", "comments": ["try stage 3 first"], "bf16": {"enabled": true},
        "zero_optimization": {"stage": 2, "_why": "fits"}})",
     2},
    {"comments_and_trailing_commas",
     "{\n// mixed precision\n\"bf16\": {\"enabled\": true,}, # on\n\"zero_optimization\": {\"stage\": 1,},\n}", 1},
    {"fp16_without_fp16_in_training",
     R"({"fp16": {"enabled": true}, "zero_optimization": {"stage": 2}})",
     0,
     {},
     "are both true; choose one"},
    {"loss_scale_auto", R"({"fp16": {"enabled": false, "loss_scale": "auto"}, "zero_optimization": {"stage": 0}})"},
    {"monitors",
     R"({"bf16": {"enabled": true}, "tensorboard": {"enabled": true, "output_path": "logs/", "job_name": "run"},
        "wandb": {"enabled": true, "project": "mine"}, "csv_monitor": {"enabled": false}})",
     0,
     {"wandb.enabled = true has no effect"}},
    {"monitors_that_are_off", R"({"bf16": {"enabled": true}, "wandb": {"enabled": false, "group": "a", "team": "b"},
        "comet": {"enabled": false, "workspace": "w"}})"},
    {"flops_profiler",
     R"({"bf16": {"enabled": true}, "flops_profiler": {"enabled": true, "profile_step": 5, "module_depth": -1,
        "top_modules": 3, "detailed": true, "output_file": null}})"},
    {"activation_checkpointing_of_megatron",
     R"({"bf16": {"enabled": true}, "activation_checkpointing": {"partition_activations": true, "cpu_checkpointing":
        false, "contiguous_memory_optimization": false, "number_checkpoints": null,
        "synchronize_checkpoint_boundary": false, "profile": false}})",
     0,
     {"partition_activations has no effect: recompute is none"}},
    {"parameters_on_nvme",
     R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path":
        "/local_nvme", "buffer_count": 5, "buffer_size": 1e8, "max_in_cpu": 1e9}}, "aio": {"block_size": 262144,
        "queue_depth": 32}})",
     3},
    {"zero_plus_plus",
     R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 3, "zero_quantized_weights": true,
        "zero_hpz_partition_size": 8, "zero_quantized_gradients": true}})",
     0,
     {},
     "zero_hpz_partition_size = 8: 2 ranks that share out parameters cannot be divided by it"},
    {"one_bit_adam",
     R"({"fp16": {"enabled": false}, "optimizer": {"type": "OneBitAdam", "params": {"lr": 2e-5, "freeze_step": 23000}}})",
     0},
    {"one_bit_adam_of_a_tutorial",
     R"({"optimizer": {"type": "OneBitAdam", "params": {"lr": 2e-5, "freeze_step": 23000, "cuda_aware": false,
        "comm_backend_name": "nccl"}}, "gradient_clipping": 1.0, "prescale_gradients": false})",
     0,
     {}},
    {"zero_one_adam_of_a_tutorial",
     R"({"optimizer": {"type": "ZeroOneAdam", "params": {"lr": 2e-5, "bias_correction": false,
        "var_freeze_step": 1000, "var_update_scaler": 16, "local_step_scaler": 1000, "local_step_clipper": 16}}})"},
    {"autotuning_that_is_off",
     R"({"bf16": {"enabled": true}, "autotuning": {"enabled": false, "results_dir": "r", "exps_dir": "e", "fast": false,
        "arg_mappings": {"train_micro_batch_size_per_gpu": "--per_device_train_batch_size"}}})"},
    {"elasticity_that_is_off",
     R"({"bf16": {"enabled": true}, "elasticity": {"enabled": false, "max_train_batch_size": 2000, "version": 0.2}})"},
    {"compression_that_is_off",
     R"({"bf16": {"enabled": true}, "compression_training": {"weight_quantization": {"shared_parameters": {"enabled":
        false}, "different_groups": {}}}})"},
    {"compile",
     R"({"bf16": {"enabled": true}, "compile": {"enabled": true, "backend": "inductor", "kwargs": {}}})",
     0,
     {"compile.enabled = true has no effect"}},
    {"hybrid_engine_of_chat",
     R"({"bf16": {"enabled": true}, "hybrid_engine": {"enabled": true, "max_out_tokens": 512, "inference_tp_size": 1}})",
     0,
     {},
     "hybrid_engine.enabled = true is not supported: generation during training is not available"},
    {"hybrid_engine_that_is_off",
     R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 3}, "hybrid_engine": {"enabled": false,
        "max_out_tokens": 512, "inference_tp_size": 1, "release_inference_cache": false, "pin_parameters": true,
        "tp_gather_partition_size": 8}})",
     3},
    {"torch_adam_and_decay",
     R"({"bf16": {"enabled": true}, "optimizer": {"type": "Adam", "params": {"lr": 2e-5, "betas": [0.9, 0.95], "eps":
        1e-8, "torch_adam": true, "adam_w_mode": true}}, "zero_optimization": {"stage": 2}})",
     2},
    {"a_schedule_with_all_keys",
     R"({"bf16": {"enabled": true}, "scheduler": {"type": "WarmupDecayLR", "params": {"last_batch_iteration": -1,
        "total_num_steps": "auto", "warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto"}}})"},
    {"batches_by_hand",
     R"({"bf16": {"enabled": true}, "train_batch_size": 16, "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 4})"},
    {"batches_that_do_not_multiply", R"({"bf16": {"enabled": true}, "train_batch_size": 20})", 0, {}, "20"},
    {"misspelt_twice",
     R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "overlap_com": true}, "gradient_cliping": 1.0})",
     0,
     {},
     "gradient_cliping: unknown key (did you mean \"gradient_clipping\"?); ds.json: zero_optimization.overlap_com: "
     "unknown key (did you mean \"overlap_comm\"?)"},
    {"gradients_in_fp32",
     R"({"bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"}, "zero_optimization": {"stage": 2}})",
     2,
     {"gradients travel in fp32 here, where DeepSpeed sends bf16"}},
    {"everything_of_a_fine_tuning_framework",
     R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto", "zero_allow_untested_optimizer": true, "fp16": {"enabled": "auto", "loss_scale": 0,
        "loss_scale_window": 1000, "initial_scale_power": 16, "hysteresis": 2, "min_loss_scale": 1}, "bf16": {"enabled":
        "auto"}, "zero_optimization": {"stage": 3, "overlap_comm": false, "contiguous_gradients": true, "sub_group_size":
        1e9, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold":
        "auto", "stage3_max_live_parameters": 1e9, "stage3_max_reuse_distance": 1e9,
        "stage3_gather_16bit_weights_on_model_save": true}})",
     3},
    {"timers_and_a_writer",
     R"({"bf16": {"enabled": true}, "timers": {"throughput": {"enabled": true, "synchronized": false}}, "checkpoint":
        {"tag_validation": "Ignore", "writer": {"type": "fast"}}})",
     0,
     {"tag_validation = \"Ignore\" has no effect", "checkpoint.writer = "}},
    {"nebula_that_is_off",
     R"({"bf16": {"enabled": true}, "nebula": {"enabled": false, "persistent_time_interval": 50}})"},
    {"accelerate_yaml_zero2",
     "compute_environment: LOCAL_MACHINE\ndeepspeed_config:\n  gradient_accumulation_steps: 4\n  gradient_clipping: "
     "1.0\n"
     "  offload_optimizer_device: none\n  offload_param_device: none\n  zero3_init_flag: false\n  zero_stage: 2\n"
     "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_machines: 1\nnum_processes: 2\nuse_cpu: false\n",
     2},
    {"accelerate_yaml_zero3_offload",
     "deepspeed_config: {zero_stage: 3, offload_optimizer_device: cpu, offload_param_device: cpu, zero3_init_flag: "
     "true,\n"
     "  zero3_save_16bit_model: true, gradient_accumulation_steps: 4}\ndistributed_type: DEEPSPEED\ndowncast_bf16: "
     "'no'\n"
     "machine_rank: 0\nmain_training_function: main\nmixed_precision: bf16\nrdzv_backend: static\n",
     3,
     {"offload_param_device", "offload_optimizer_device"}},
    {"accelerate_yaml_of_several_gpus",
     "distributed_type: MULTI_GPU\ngpu_ids: all\nmixed_precision: 'no'\nnum_machines: 1\nnum_processes: 2\n"},
    {"accelerate_yaml_fsdp", "distributed_type: FSDP\nfsdp_config: {}\n", 0, {}, "distributed_type = \"FSDP\""},
    {"sparse_attention",
     R"({"bf16": {"enabled": true}, "sparse_attention": {"mode": "fixed", "block": 16}})",
     0,
     {},
     "sparse_attention = "},
};

/// The plan of a run with the file, on two ranks.
RunPlan plan_with(const PublicFile& file) {
  RunConfig config = make_run_config(
      parse_json(std::string(R"({"model": {"hidden_size": 64}, "training": )") + kTraining + "}", "RUN.json"),
      "RUN.json", {});
  const bool is_yaml = std::string_view(file.name).starts_with("accelerate_yaml");
  config.deepspeed = is_yaml ? parse_yaml(file.file, "acc.yaml") : parse_json(file.file, "ds.json");
  config.origins.add_file("deepspeed", is_yaml ? "acc.yaml" : "ds.json");
  if (is_yaml) config.deepspeed = read_accelerate_config(config.deepspeed, "acc.yaml", config.origins).deepspeed;
  return resolve(config, 2);
}

class PublicFiles : public ::testing::TestWithParam<PublicFile> {};

TEST_P(PublicFiles, get_their_verdict) {
  const PublicFile& file = GetParam();
  try {
    const RunPlan plan = plan_with(file);
    EXPECT_STREQ(file.error, "") << "it was accepted";
    EXPECT_EQ(plan.layout.zero_stage, file.zero_stage);
    ASSERT_EQ(plan.warnings.size(), file.warnings.size()) << ::testing::PrintToString(plan.warnings);
    for (size_t i = 0; i < plan.warnings.size(); ++i) EXPECT_THAT(plan.warnings[i], HasSubstr(file.warnings[i]));
  } catch (const ConfigError& error) {
    ASSERT_STRNE(file.error, "") << error.what();
    EXPECT_THAT(error.what(), HasSubstr(file.error));
  }
}

INSTANTIATE_TEST_SUITE_P(Configs, PublicFiles, ::testing::ValuesIn(kFiles),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace nought::test::public_files_test
