// The table of DeepSpeed's keys that Nought knows but does not implement, each with its default and its reason.
#include <array>

#include "nought/config/ds_config.h"

namespace nought {

namespace {

using enum KeyStatus;

constexpr std::string_view kTwoUnits = "at most two Units are resident: the one computing and the one being fetched";
constexpr std::string_view kNoOffload = "offloading is not available; use device \"none\"";
constexpr std::string_view kZeroPlusPlus = "quantized and hierarchical collectives (ZeRO++) are not available";
constexpr std::string_view kMics = "sharding within sub-groups (MiCS) is not available";
constexpr std::string_view kNoFiles = "nothing is offloaded to files";
constexpr std::string_view kMetricsOnly = "use tensorboard, csv_monitor or metrics.jsonl in training.output_dir";
constexpr std::string_view kGated = "";

constexpr auto kRules = std::to_array<KeyRule>({
    // optimizer, scheduler
    {"optimizer.legacy_fusion", "false", no_effect, "the update is always one pass"},
    {"optimizer.params.amsgrad", "false", refused, "AMSGrad is not available"},
    {"optimizer.params.fused", "false | true", no_effect, "the update is always one pass"},
    {"zero_allow_untested_optimizer", "false | true", no_effect, "every optimizer here works at every stage"},
    {"zero_force_ds_cpu_optimizer", "true | false", no_effect,
     "each kernel backend has one implementation of each optimizer"},

    // precision
    {"fp16.auto_cast", "false | true", no_effect, "tokens are integers, there is no input to cast"},
    {"bf16.immediate_grad_update", "false | true", no_effect, "gradients are accumulated at once"},
    {"bf16.check_grad_overflow", "true", no_effect, "the gradient's norm is computed in every update"},
    {"data_types.param_dtype", "null", refused, "the dtype of parameters follows bf16.enabled and fp16.enabled"},
    {"data_types.buffer_dtype", "null", refused, "a model has no buffers, rotary tables and statistics are fp32"},
    {"fp32_allreduce", "false", refused, "write communication_data_type = \"fp32\""},
    {"amp.enabled", "false | \"auto\"", refused, "Apex is not available; use bf16"},
    {"amp.opt_level", "\"O1\" | \"auto\"", gated, kGated},
    {"torch_autocast.enabled", "false", refused, "use bf16"},
    {"torch_autocast.*", "{}", enabled, "use bf16"},

    // zero_optimization
    {"zero_optimization.contiguous_gradients", "true", no_effect, "a Unit's gradients always are one flat buffer"},
    {"zero_optimization.reduce_scatter", "true", no_effect, "gradients are always reduce-scattered"},
    {"zero_optimization.allgather_partitions", "true", no_effect, "parameters are always all-gathered"},
    {"zero_optimization.sub_group_size", "1e9", no_effect, "the update runs over one Unit's shard after the other"},
    {"zero_optimization.round_robin_gradients", "false", no_effect, "every rank owns an equal part of every Unit"},
    {"zero_optimization.load_from_fp32_weights", "true", no_effect, "checkpoints always restore the fp32 weights"},
    {"zero_optimization.ignore_unused_parameters", "true", no_effect, "every parameter takes part in every update"},
    {"zero_optimization.elastic_checkpoint", "false", no_effect, "every checkpoint loads at any number of ranks"},
    {"zero_optimization.stage3_prefetch_bucket_size", "5e7 | 5e8", no_effect, "the next Unit is prefetched, whole"},
    {"zero_optimization.stage3_param_persistence_threshold", "1e5", no_effect,
     "parameters are sharded by whole Units; no small one stays behind"},
    {"zero_optimization.stage3_model_persistence_threshold", "9223372036854775807", no_effect,
     "parameters are sharded by whole Units; no small one stays behind"},
    {"zero_optimization.stage3_max_live_parameters", "1e9", no_effect, kTwoUnits},
    {"zero_optimization.stage3_max_reuse_distance", "1e9", no_effect, kTwoUnits},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save", "false", no_effect,
     "every checkpoint holds all parameters, whatever the stage"},
    {"zero_optimization.stage3_gather_fp16_weights_on_model_save", "false", no_effect,
     "every checkpoint holds all parameters, whatever the stage"},
    {"zero_optimization.zero_hpz_partition_size", "1", refused, kZeroPlusPlus},
    {"zero_optimization.zero_quantized_weights", "false", refused, kZeroPlusPlus},
    {"zero_optimization.zero_quantized_nontrainable_weights", "false", refused, kZeroPlusPlus},
    {"zero_optimization.zero_quantized_gradients", "false", refused, kZeroPlusPlus},
    {"zero_optimization.mics_shard_size", "-1", refused, kMics},
    {"zero_optimization.mics_hierarchical_params_gather", "false", refused, kMics},
    {"zero_optimization.cpu_offload", "false", refused, kNoOffload},
    {"zero_optimization.cpu_offload_params", "false", refused, kNoOffload},
    {"zero_optimization.cpu_offload_use_pin_memory", "false", gated, kGated},
    {"zero_optimization.offload_param.device", "\"none\" | null", refused, kNoOffload},
    {"zero_optimization.offload_param.nvme_path", "null", gated, kGated},
    {"zero_optimization.offload_param.buffer_count", "5", gated, kGated},
    {"zero_optimization.offload_param.buffer_size", "1e8", gated, kGated},
    {"zero_optimization.offload_param.max_in_cpu", "1e9", gated, kGated},
    {"zero_optimization.offload_param.pin_memory", "true", gated, kGated},
    {"zero_optimization.offload_optimizer.device", "\"none\" | null", refused, kNoOffload},
    {"zero_optimization.offload_optimizer.nvme_path", "null", gated, kGated},
    {"zero_optimization.offload_optimizer.buffer_count", "4", gated, kGated},
    {"zero_optimization.offload_optimizer.pin_memory", "true", gated, kGated},
    {"zero_optimization.offload_optimizer.pipeline_read", "false", gated, kGated},
    {"zero_optimization.offload_optimizer.pipeline_write", "false", gated, kGated},
    {"zero_optimization.offload_optimizer.fast_init", "false", gated, kGated},
    {"zero_optimization.offload_optimizer.ratio", "1.0", gated, kGated},

    // activation_checkpointing, aio
    {"activation_checkpointing.partition_activations", "false", refused, "it needs tensor parallelism"},
    {"activation_checkpointing.synchronize_checkpoint_boundary", "false", no_effect, "a stream runs in order"},
    {"activation_checkpointing.profile", "false", no_effect, "recomputation is not timed separately"},
    {"aio.block_size", "1048576", no_effect, kNoFiles},
    {"aio.queue_depth", "8", no_effect, kNoFiles},
    {"aio.intra_op_parallelism", "1", no_effect, kNoFiles},
    {"aio.thread_count", "1", no_effect, kNoFiles},
    {"aio.single_submit", "false", no_effect, kNoFiles},
    {"aio.overlap_events", "true", no_effect, kNoFiles},
    {"aio.use_gds", "false", no_effect, kNoFiles},

    // training and communication scalars
    {"gradient_allreduce_op", "\"mean\"", refused, "gradients are averaged"},
    {"seq_parallel_communication_data_type", "\"fp32\"", no_effect, "there is no sequence parallelism"},
    {"sparse_gradients", "false", no_effect, "the gradient of the embedding is always dense"},
    {"dataloader_drop_last", "false", no_effect, "every batch is whole"},

    // logging
    {"wandb.enabled", "false", no_effect, kMetricsOnly},
    {"wandb.group", "null", gated, kGated},
    {"wandb.team", "null", gated, kGated},
    {"wandb.project", "\"deepspeed\"", gated, kGated},
    {"comet.enabled", "false", no_effect, kMetricsOnly},
    {"comet.*", "{}", gated, kGated},
    {"comms_logger.debug", "false", no_effect, "--trace shows where each collective came from"},

    // everything else
    {"checkpoint.tag_validation", "\"Warn\"", no_effect, "one rank chooses the name of a checkpoint for all"},
    {"checkpoint.load_universal", "false", no_effect, "every checkpoint is universal"},
    {"checkpoint.use_node_local_storage", "false", refused, "checkpoints go to one directory that all ranks see"},
    {"checkpoint.parallel_write.pipeline_stage", "false", no_effect, "there is no pipeline"},
    {"elasticity.enabled", "false", refused, "the number of ranks is fixed during a run"},
    {"elasticity.max_train_batch_size", "2000", gated, kGated},
    {"elasticity.micro_batch_sizes", "[2,4,6]", gated, kGated},
    {"elasticity.min_gpus", "1", gated, kGated},
    {"elasticity.max_gpus", "10000", gated, kGated},
    {"elasticity.min_time", "0", gated, kGated},
    {"elasticity.prefer_larger_batch", "true", gated, kGated},
    {"elasticity.prefer_large_batch", "true", gated, kGated},
    {"elasticity.ignore_non_elastic_batch_info", "false", gated, kGated},
    {"elasticity.version", "0.2", gated, kGated},
    {"autotuning.enabled", "false", refused, "there is no autotuner"},
    {"autotuning.metric", "\"throughput\"", gated, kGated},
    {"autotuning.fast", "true", gated, kGated},
    {"autotuning.tuner_type", "\"gridsearch\"", gated, kGated},
    {"autotuning.tuner_early_stopping", "5", gated, kGated},
    {"autotuning.tuner_num_trials", "50", gated, kGated},
    {"compression_training.weight_quantization.*", "{}", enabled, "compression is not available"},
    {"compression_training.activation_quantization.*", "{}", enabled, "compression is not available"},
    {"compression_training.sparse_pruning.*", "{}", enabled, "compression is not available"},
    {"compression_training.row_pruning.*", "{}", enabled, "compression is not available"},
    {"compression_training.head_pruning.*", "{}", enabled, "compression is not available"},
    {"compression_training.channel_pruning.*", "{}", enabled, "compression is not available"},
    {"compression_training.layer_reduction.*", "{}", enabled, "compression is not available"},
    {"pipeline.stages", "\"auto\" | 1", refused, "pipeline parallelism is not available"},
    {"pipeline.partition", "\"best\"", gated, kGated},
    {"pipeline.activation_checkpoint_interval", "0", refused, "pipeline parallelism is not available"},
    {"tensor_parallel.autotp_size", "0 | 1", refused, "tensor parallelism is not available"},
    {"sequence_parallel_size", "1", refused, "sequence parallelism is not available"},
    {"curriculum_learning.enabled", "false", refused, "curriculum learning is not available"},
    {"curriculum_learning.curriculum_type", "\"seqlen\"", gated, kGated},
    {"curriculum_learning.min_difficulty", "null", gated, kGated},
    {"curriculum_learning.max_difficulty", "null", gated, kGated},
    {"curriculum_learning.schedule_type", "null", gated, kGated},
    {"curriculum_learning.schedule_config.*", "{}", gated, kGated},
    {"data_efficiency.*", "{}", enabled, "data sampling and routing by difficulty are not available"},
    {"progressive_layer_drop.*", "{}", enabled, "progressive layer dropping is not available"},
});

}  // namespace

std::span<const KeyRule> ds_key_rules() { return kRules; }

}  // namespace nought
