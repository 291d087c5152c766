// The table of DeepSpeed's keys that Nought knows but does not implement, each with its default and its reason.
#include <array>

#include "nought/config/ds_config.h"

namespace nought {

namespace {

using enum KeyStatus;

constexpr std::string_view kTwoUnits = "the Unit that comes next is gathered while one computes";
constexpr std::string_view kHostIsDevice = "parameters and states already live in host memory: no copy is made";
constexpr std::string_view kWholeUnits = "parameters are sharded by whole Units; no small one stays behind";
constexpr std::string_view kWholeCheckpoints = "every checkpoint holds all parameters, whatever the stage";
constexpr std::string_view kMetricsOnly = "use tensorboard, csv_monitor or metrics.jsonl in training.output_dir";
constexpr std::string_view kOwnTransport = "what they send travels as all else does";
constexpr std::string_view kOneWriter = "files are written by one thread of each rank, and renamed when they are whole";
constexpr std::string_view kSpeed = "speed is always measured";
constexpr std::string_view kOwnExperts = "the model's config.json says which layers have experts, and how";
constexpr std::string_view kOwnRouting = "tokens are routed as the model's config.json says";
constexpr std::string_view kOneDispatch = "tokens are exchanged, and experts computed, in one way";
constexpr std::string_view kOwnTokens =
    "ranks of tp_size send their slices of the tokens with training.parallelism_config.sequence_parallel, else each "
    "all";
constexpr std::string_view kCompiled = "every kernel is compiled already";
constexpr std::string_view kOrdered = "collectives wait for what they read, and nothing else";
constexpr std::string_view kGated = "";

constexpr auto kRules = std::to_array<KeyRule>({
    // optimizer, scheduler
    {"optimizer.legacy_fusion", "false", no_effect, "the update is always one pass"},
    {"optimizer.params.amsgrad", "false", refused, "AMSGrad is not available"},
    {"optimizer.params.fused", "false | true", no_effect, "the update is always one pass"},
    {"zero_allow_untested_optimizer", "false | true", no_effect, "every optimizer here works at every stage"},
    {"optimizer.params.ns_method", "null | \"newton_schulz\"", no_effect, "Muon's update has one implementation"},
    {"optimizer.params.fp32_optimizer_states", "true", refused, "write bf16.bf16_optimizer_states = true"},
    {"optimizer.params.cuda_aware", "false | true | null", no_effect, kOwnTransport},
    {"optimizer.params.comm_backend_name", "\"nccl\" | \"mpi\" | \"hccl\" | \"compressed\" | null", no_effect,
     kOwnTransport},
    {"optimizer.params.exp_avg_mask", "null", refused,
     "elements without a gradient before the second moments are frozen are left alone by themselves"},
    {"scheduler.params.last_batch_iteration", "-1", no_effect, "a resumed run continues its schedule by itself"},
    {"zero_force_ds_cpu_optimizer", "true | false", no_effect,
     "each kernel backend has one implementation of each optimizer"},

    // precision
    {"fp16.auto_cast", "false | true", no_effect, "tokens are integers, there is no input to cast"},
    {"bf16.immediate_grad_update", "false | true", no_effect, "gradients are accumulated at once"},
    {"bf16.grad_hooks", "false | true", no_effect, "gradients are accumulated at once"},
    {"grad_hooks", "false | true", no_effect, "gradients are accumulated at once"},
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
    {"zero_optimization.round_robin_gradients", "false", no_effect, "every rank owns an equal part of every Unit"},
    {"zero_optimization.load_from_fp32_weights", "true", no_effect, "checkpoints always restore the fp32 weights"},
    {"zero_optimization.ignore_unused_parameters", "true", no_effect, "every parameter takes part in every update"},
    {"zero_optimization.memory_efficient_linear", "true | false", no_effect, "products keep what backward reads, once"},
    {"zero_optimization.override_module_apply", "true | false", no_effect, "each rank draws the weights that it owns"},
    {"zero_optimization.pipeline_loading_checkpoint", "false | true", no_effect, "each rank reads what it owns"},
    {"zero_optimization.legacy_stage1", "false | true", no_effect, "stage 1 has one implementation"},
    {"zero_optimization.elastic_checkpoint", "false", no_effect, "every checkpoint loads at any number of ranks"},
    {"zero_optimization.stage3_prefetch_bucket_size", "5e7 | 5e8", no_effect, "the next Unit is prefetched, whole"},
    {"zero_optimization.stage3_param_persistence_threshold", "1e5", no_effect, kWholeUnits},
    {"zero_optimization.stage3_model_persistence_threshold", "9223372036854775807", no_effect, kWholeUnits},
    {"zero_optimization.prefetch_bucket_size", "5e7 | 5e8", no_effect, "the next Unit is prefetched, whole"},
    {"zero_optimization.param_persistence_threshold", "1e5", no_effect, kWholeUnits},
    {"zero_optimization.model_persistence_threshold", "9223372036854775807", no_effect, kWholeUnits},
    {"zero_optimization.module_granularity_threshold", "0", no_effect, kWholeUnits},
    {"zero_optimization.stage3_module_granularity_threshold", "0", no_effect, kWholeUnits},
    {"zero_optimization.leaf_module", "null", no_effect, kWholeUnits},
    {"zero_optimization.log_trace_cache_warnings", "false", no_effect, "the order of Units is known, not traced"},
    {"zero_optimization.stage3_use_all_reduce_for_fetch_params", "false", no_effect,
     "parameters are always all-gathered"},
    {"zero_optimization.use_all_reduce_for_fetch_params", "false", no_effect, "parameters are always all-gathered"},
    {"zero_optimization.gather_16bit_weights_on_model_save", "false | true", no_effect, kWholeCheckpoints},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save", "false | true", no_effect, kWholeCheckpoints},
    {"zero_optimization.stage3_gather_fp16_weights_on_model_save", "false | true", no_effect, kWholeCheckpoints},
    {"zero_optimization.cpu_offload_use_pin_memory", "false", gated, kGated},
    {"zero_optimization.offload_optimizer.fast_init", "false", no_effect,
     "masters are read from where the weights come from, once"},
    {"zero_optimization.offload_optimizer.super_offload", "false", no_effect, kHostIsDevice,
     "updates run overlapped with the backward pass by themselves, where nothing has to be known before them"},
    {"zero_optimization.offload_optimizer.cpuadam_cores_perc", "0.8 | 0.9", gated, kGated},
    {"zero_optimization.zenflow", "null", refused, "ZenFlow updates some columns late, which changes results"},

    // activation_checkpointing, aio
    {"activation_checkpointing.synchronize_checkpoint_boundary", "false", no_effect, "a stream runs in order"},
    {"activation_checkpointing.profile", "false", no_effect, "recomputation is not timed separately"},
    {"aio.use_gds", "false", no_effect, "files are read into the memory of the host"},

    // training and communication scalars
    {"gradient_allreduce_op", "\"mean\"", refused, "gradients are averaged"},
    {"sparse_gradients", "false", no_effect, "the gradient of the embedding is always dense"},
    {"disable_allgather", "false", refused, "ranks would train with parameters of their own"},
    {"managed_gradient_accumulation", "true", no_effect, "micro-batches are always accumulated here"},
    {"use_data_before_expert_parallelism", "false", no_effect,
     "neighbouring data-parallel ranks hold different experts; the order of ranks changes no result"},
    {"dataloader_drop_last", "false", no_effect, "every batch is whole"},

    // logging
    {"wandb.enabled", "false", no_effect, kMetricsOnly},
    {"wandb.group", "null", gated, kGated},
    {"wandb.team", "null", gated, kGated},
    {"wandb.project", "\"deepspeed\"", gated, kGated},
    {"comet.enabled", "false", no_effect, kMetricsOnly},
    {"comet.*", "{}", gated, kGated},
    {"comms_logger.debug", "false", no_effect, "--trace shows where each collective came from"},
    {"timers.throughput.enabled", "true | false", no_effect, kSpeed},
    {"timers.throughput.synchronized", "true | false", no_effect, kSpeed},

    // everything else
    {"checkpoint.tag_validation", "\"Warn\"", no_effect, "one rank chooses the name of a checkpoint for all"},
    {"checkpoint.load_universal", "false", no_effect, "every checkpoint is universal"},
    {"checkpoint.use_node_local_storage", "false", refused, "checkpoints go to one directory that all ranks see"},
    {"checkpoint.parallel_write.pipeline_stage", "false", no_effect, "every rank always writes what it owns"},
    {"checkpoint.checkpoint_serialization", "true | false", no_effect, kOneWriter},
    {"checkpoint.writer", "null", no_effect, kOneWriter},
    {"nebula.enabled", "false", refused, "Nebula is a service of Azure; checkpoints go to training.output_dir"},
    {"nebula.*", "{}", gated, kGated},
    {"datastates_ckpt", "null", no_effect, kOneWriter},
    {"elasticity.prefer_large_batch", "true", refused,
     "this name stands in DeepSpeed's documentation alone; write prefer_larger_batch"},
    {"autotuning.enabled", "false", refused, "training does not tune itself; run `nought tune RUN.json`"},
    {"autotuning.metric", "\"throughput\"", gated, kGated},
    {"autotuning.fast", "true", gated, kGated},
    {"autotuning.tuner_type", "\"gridsearch\"", gated, kGated},
    {"autotuning.tuner_early_stopping", "5", gated, kGated},
    {"autotuning.tuner_num_trials", "50", gated, kGated},
    {"autotuning.results_dir", "\"autotuning_results\"", gated, kGated},
    {"autotuning.exps_dir", "\"autotuning_exps\"", gated, kGated},
    {"autotuning.overwrite", "true", gated, kGated},
    {"autotuning.start_profile_step", "3", gated, kGated},
    {"autotuning.end_profile_step", "5", gated, kGated},
    {"autotuning.arg_mappings", "null", gated, kGated},
    {"autotuning.model_info", "null", gated, kGated},
    {"autotuning.model_info_path", "null", gated, kGated},
    {"autotuning.metric_path", "null", gated, kGated},
    {"autotuning.mp_size", "1", gated, kGated},
    {"autotuning.num_tuning_micro_batch_sizes", "3", gated, kGated},
    {"autotuning.max_train_batch_size", "null", gated, kGated},
    {"autotuning.min_train_batch_size", "1", gated, kGated},
    {"autotuning.max_train_micro_batch_size_per_gpu", "1024", gated, kGated},
    {"autotuning.min_train_micro_batch_size_per_gpu", "1", gated, kGated},
    {"autotuning.template", "null", gated, kGated},
    {"compile.enabled", "false", no_effect, kCompiled},
    {"compile.backend", "\"inductor\"", gated, kGated},
    {"compile.kwargs", "{}", gated, kGated},
    {"compile.deepcompile", "false", no_effect, kCompiled},
    {"compile.free_activation", "false", no_effect, "activations are freed when backward has read them"},
    {"compile.free_activation_threshold", "10485760", no_effect, "activations are freed when backward has read them"},
    {"compile.offload_activation", "false", refused, "write activation_checkpointing.cpu_checkpointing"},
    {"compile.offload_activation_pin_memory", "true | false", no_effect, kHostIsDevice,
     "what a GPU copies from or to is always pinned"},
    {"compile.offload_opt_states", "false", refused, "write zero_optimization.offload_optimizer"},
    {"compile.offload_parameters", "false", refused, "write zero_optimization.offload_param"},
    {"compile.double_buffer", "true | false", no_effect, kTwoUnits},
    {"compile.symmetric_memory", "false", no_effect, "ranks of a host read shared windows already"},
    {"compile.debug_log", "false", no_effect, "there is no graph to show; --trace shows what ran"},
    {"compile.sync_before_reduce", "false", no_effect, kOrdered},
    {"compile.sync_after_reduce", "false", no_effect, kOrdered},
    {"compile.sync_before_allgather", "false", no_effect, kOrdered},
    {"compile.sync_after_allgather", "false", no_effect, kOrdered},
    {"compile.keep_int_input_tensors", "true | false", no_effect, kCompiled},
    {"compile.keep_all_input_tensors", "false | true", no_effect, kCompiled},
    {"compile.passes", "null", no_effect, kCompiled},
    {"graph_harvesting", "false | true", no_effect, "nothing is captured: every kernel is called directly"},
    {"eigenvalue.enabled", "false", refused, "eigenvalues of the Hessian are not available"},
    {"eigenvalue.verbose", "false", gated, kGated},
    {"eigenvalue.max_iter", "100", gated, kGated},
    {"eigenvalue.tol", "1e-2", gated, kGated},
    {"eigenvalue.stability", "1e-6", gated, kGated},
    {"eigenvalue.gas_boundary_resolution", "1", gated, kGated},
    {"eigenvalue.layer_name", "\"bert.encoder.layer\"", gated, kGated},
    {"eigenvalue.layer_num", "0", gated, kGated},
    {"sparse_attention", "null", refused, "attention is dense, with or without a window"},
    {"hybrid_engine.enabled", "false", refused, "generation during training is not available"},
    {"hybrid_engine.max_out_tokens", "512", gated, kGated},
    {"hybrid_engine.inference_tp_size", "1", gated, kGated},
    {"hybrid_engine.release_inference_cache", "false", gated, kGated},
    {"hybrid_engine.pin_parameters", "true", gated, kGated},
    {"hybrid_engine.tp_gather_partition_size", "8", gated, kGated},
    {"quantize_training.*", "{}", enabled, "training with quantized weights is not available"},
    {"compression_training.row_pruning.*", "{}", enabled, "compression is not available"},
    {"compression_training.head_pruning.*", "{}", enabled, "compression is not available"},
    {"compression_training.channel_pruning.*", "{}", enabled, "compression is not available"},
    {"compression_training.layer_reduction.*", "{}", enabled, "compression is not available"},
    {"pipeline.seed_layers", "false", no_effect,
     "initial values follow from seed, name and index of a parameter: every cut gives the same"},
    {"pipeline.pipe_partitioned", "true", no_effect, kOwnTokens},
    {"pipeline.grad_partitioned", "true", no_effect, kOwnTokens},
    {"pipeline.use_reentrant", "true | false", no_effect, "recomputation has one implementation"},
    {"tensor_parallel.preset_model", "null", refused, "a model is cut as its own config.json says"},
    {"tensor_parallel.tp_overlap_comm", "false", refused, "sums over the tensor axis are not overlapped with products"},
    {"tensor_parallel.partition_config", "null", refused, "a model is cut as its own config.json says"},
    {"expert_parallel.expert_parallel_size", "1", refused, "write expert_parallel.autoep_size"},
    {"expert_parallel.preset_model", "null", no_effect, kOwnExperts},
    {"expert_parallel.moe_layer_pattern", "null", no_effect, kOwnExperts},
    {"expert_parallel.expert_pattern", "null", no_effect, kOwnExperts},
    {"expert_parallel.router_pattern", "null", no_effect, kOwnExperts},
    {"expert_parallel.expert_w1", "null", no_effect, kOwnExperts},
    {"expert_parallel.expert_w2", "null", no_effect, kOwnExperts},
    {"expert_parallel.expert_w3", "null", no_effect, kOwnExperts},
    {"expert_parallel.num_experts_attr", "null", no_effect, kOwnExperts},
    {"expert_parallel.top_k_attr", "null", no_effect, kOwnExperts},
    {"expert_parallel.has_shared_experts", "null", no_effect, kOwnExperts},
    {"expert_parallel.shared_experts_pattern", "null", no_effect, kOwnExperts},
    {"expert_parallel.shared_experts_gate_pattern", "null", no_effect, kOwnExperts},
    {"expert_parallel.expert_activation", "null", refused, kOwnRouting},
    {"expert_parallel.top_k", "\"auto\"", refused, kOwnRouting},
    {"expert_parallel.score_func", "\"auto\"", refused, kOwnRouting},
    {"expert_parallel.score_apply", "\"auto\"", refused, kOwnRouting},
    {"expert_parallel.route_norm", "null", refused, kOwnRouting},
    {"expert_parallel.route_scale", "1.0", refused, kOwnRouting},
    {"expert_parallel.routed_scaling_factor", "\"auto\"", refused, kOwnRouting},
    {"expert_parallel.num_expert_groups", "null", refused, kOwnRouting},
    {"expert_parallel.num_limited_groups", "null", refused, kOwnRouting},
    {"expert_parallel.load_balance_coeff", "null", refused, kOwnRouting},
    {"expert_parallel.use_grouped_mm", "true | false", no_effect, kOneDispatch},
    {"expert_parallel.disable_triton_grouped_mm", "false | true", no_effect, kOneDispatch},
    {"expert_parallel.combine_impl", "\"auto\"", no_effect, kOneDispatch},
    {"expert_parallel.row_weighting_impl", "\"auto\"", no_effect, kOneDispatch},
    {"expert_parallel.gate_up_impl", "\"separate\"", no_effect, kOneDispatch},
    {"expert_parallel.async_split_plan", "false", no_effect, kOneDispatch},
    {"expert_parallel.validate_folding_routing", "false", no_effect, kOneDispatch},
    {"expert_parallel.comm_backend", "\"comm\"", no_effect, kOneDispatch},
    {"expert_parallel.comm_num_sm", "12", no_effect, kOneDispatch},
    {"expert_parallel.comm_qp_margin", "4", no_effect, kOneDispatch},
    {"expert_parallel.comm_max_tokens_per_rank", "0", no_effect, kOneDispatch},
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
