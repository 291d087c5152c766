// DsConfig: DeepSpeed's ds_config.json. It reads an unmodified one and accounts for every key in it.
//
// Design goals: every known key stands in one of two lists. The visit() members list the keys that are implemented. The
// others stand in ds_key_rules(): a key without effect here gives a warning that names it; a key that would change
// results or memory in a way that is not implemented is an error with the reason. A key at DeepSpeed's default is
// always accepted.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nought/base/visit.h"
#include "nought/config/ds_compression.h"
#include "nought/config/ds_elasticity.h"
#include "nought/config/ds_live_parameters.h"
#include "nought/config/ds_offload.h"
#include "nought/config/ds_parallel.h"
#include "nought/config/ds_zeropp.h"
#include "nought/config/key_rules.h"
#include "nought/config/optimizer_args.h"
#include "nought/optim/schedule.h"
#include "nought/tensor/dtype.h"

namespace nought {

template <>
struct EnumNames<WarmupShape> {
  static constexpr std::array<std::pair<WarmupShape, std::string_view>, 2> value{
      {{WarmupShape::log, "log"}, {WarmupShape::linear, "linear"}}};
};

struct DsOptimizerParams {
  Auto<double> lr;
  Auto<std::vector<double>> betas;
  Auto<double> eps;
  Auto<double> weight_decay;
  Setting<bool> adam_w_mode{true};
  Setting<bool> torch_adam{false};
  OptimizerArgs args;

  template <class V>
  void visit(V& v) {
    v("lr", lr, "peak learning rate; auto <- training.learning_rate");
    v("betas", betas, "decay of the two moments; auto <- training.adam_beta1, training.adam_beta2");
    v("eps", eps, "added to the root of the second moment; auto <- training.adam_epsilon");
    v("weight_decay", weight_decay, "weight decay; auto <- training.weight_decay");
    v("adam_w_mode", adam_w_mode, "Adam only: decoupled weight decay, which AdamW always has");
    v("torch_adam", torch_adam, "selects an implementation in DeepSpeed; the arithmetic is the same");
    args.visit(v);
  }
};

struct DsOptimizer {
  Setting<std::string> type;
  DsOptimizerParams params;

  template <class V>
  void visit(V& v) {
    v("type", type, "Adam, AdamW, Adagrad, Lamb, Lion, Muon, SGD, OneBitAdam, OneBitLamb or ZeroOneAdam");
    v("params", params, "the optimizer's parameters");
  }
};

struct DsSchedulerParams {
  Auto<double> warmup_min_lr;
  Auto<double> warmup_max_lr;
  Auto<int64_t> warmup_num_steps;
  Setting<WarmupShape> warmup_type{WarmupShape::log};
  Auto<int64_t> total_num_steps;
  Setting<double> warmup_min_ratio{0.0};
  Setting<double> cos_min_ratio{1e-4};
  Setting<double> lr_range_test_min_lr{1e-3};
  Setting<int64_t> lr_range_test_step_size{int64_t{2000}};
  Setting<double> lr_range_test_step_rate{1.0};
  Setting<bool> lr_range_test_staircase{false};
  Setting<double> cycle_min_lr;
  Setting<double> cycle_max_lr;
  Setting<double> decay_lr_rate{0.0};
  Setting<int64_t> cycle_first_step_size{int64_t{2000}};
  Setting<int64_t> cycle_second_step_size;
  Setting<int64_t> cycle_first_stair_count{int64_t{0}};
  Setting<int64_t> cycle_second_stair_count;
  Setting<int64_t> decay_step_size{int64_t{0}};
  Setting<bool> cycle_momentum{true};
  Setting<double> cycle_min_mom{0.8};
  Setting<double> cycle_max_mom{0.9};
  Setting<double> decay_mom_rate{0.0};

  template <class V>
  void visit(V& v) {
    v("warmup_min_lr", warmup_min_lr, "WarmupLR, WarmupDecayLR: lowest learning rate; auto <- 0");
    v("warmup_max_lr", warmup_max_lr, "WarmupLR, WarmupDecayLR: highest learning rate; auto <- training.learning_rate");
    v("warmup_num_steps", warmup_num_steps, "length of the ramp; auto <- training.warmup_steps or warmup_ratio");
    v("warmup_type", warmup_type, "shape of the ramp");
    v("total_num_steps", total_num_steps, "WarmupDecayLR, WarmupCosineLR: length of the run; auto <- computed");
    v("warmup_min_ratio", warmup_min_ratio, "WarmupCosineLR: start of the ramp, as a fraction of optimizer.params.lr");
    v("cos_min_ratio", cos_min_ratio, "WarmupCosineLR: end of the cosine, as a fraction of optimizer.params.lr");
    v("lr_range_test_min_lr", lr_range_test_min_lr, "LRRangeTest: the first rate");
    v("lr_range_test_step_size", lr_range_test_step_size,
      "LRRangeTest: number of updates in which the rate rises by one step");
    v("lr_range_test_step_rate", lr_range_test_step_rate, "LRRangeTest: height of a step, relative to the first rate");
    v("lr_range_test_staircase", lr_range_test_staircase, "LRRangeTest: the rate rises in stairs instead of in a line");
    v("cycle_min_lr", cycle_min_lr, "OneCycle: learning rate at both ends of the cycle");
    v("cycle_max_lr", cycle_max_lr, "OneCycle: learning rate at the peak");
    v("decay_lr_rate", decay_lr_rate, "OneCycle: decay of the rate after the cycle");
    v("cycle_first_step_size", cycle_first_step_size, "OneCycle: number of updates up to the peak");
    v("cycle_second_step_size", cycle_second_step_size,
      "OneCycle: number of updates down from the peak; default: as many as up");
    v("cycle_first_stair_count", cycle_first_stair_count, "OneCycle: stairs up; 0 = a line");
    v("cycle_second_stair_count", cycle_second_stair_count, "OneCycle: stairs down; default: as many as up");
    v("decay_step_size", decay_step_size, "OneCycle: number of updates of one step of the decay; 0 = no decay");
    v("cycle_momentum", cycle_momentum, "OneCycle: move Adam's first beta the other way, with 0.99 as the second");
    v("cycle_min_mom", cycle_min_mom, "OneCycle: first beta at the peak");
    v("cycle_max_mom", cycle_max_mom, "OneCycle: first beta at both ends");
    v("decay_mom_rate", decay_mom_rate, "OneCycle: change of the first beta after the cycle");
  }
};

struct DsScheduler {
  Setting<std::string> type;
  DsSchedulerParams params;

  template <class V>
  void visit(V& v) {
    v("type", type, "WarmupLR, WarmupDecayLR, WarmupCosineLR, LRRangeTest or OneCycle");
    v("params", params, "the schedule's parameters");
  }
};

struct DsBf16 {
  Auto<bool> enabled;
  Setting<bool> bf16_master_weights_and_grads{false};
  Setting<bool> bf16_optimizer_states{false};

  template <class V>
  void visit(V& v) {
    v("enabled", enabled, "compute in bfloat16, with fp32 master weights; auto <- training.bf16");
    v("bf16_master_weights_and_grads", bf16_master_weights_and_grads,
      "update the bf16 weights themselves, without fp32 masters; see training.stochastic_rounding");
    v("bf16_optimizer_states", bf16_optimizer_states, "keep the optimizer's states in bf16");
  }
};

struct DsFp16 {
  Auto<bool> enabled;
  Auto<double> loss_scale;
  Setting<int> initial_scale_power{16};
  Setting<int64_t> loss_scale_window{int64_t{1000}};
  Setting<int64_t> hysteresis{int64_t{2}};
  Setting<bool> consecutive_hysteresis{false};
  Setting<double> min_loss_scale{1.0};
  Setting<bool> fp16_master_weights_and_grads{false};

  template <class V>
  void visit(V& v) {
    v("enabled", enabled,
      "compute in half precision, with fp32 master weights and loss scaling; auto <- training.fp16");
    v("loss_scale", loss_scale, "a constant scale; default, 0 and auto: dynamic");
    v("initial_scale_power", initial_scale_power, "the first dynamic scale is 2 to this power");
    v("loss_scale_window", loss_scale_window, "number of steps without an overflow after which the scale is doubled");
    v("hysteresis", hysteresis, "number of overflows after which the scale is halved");
    v("fp16_master_weights_and_grads", fp16_master_weights_and_grads,
      "update the fp16 weights themselves, without fp32 masters; see training.stochastic_rounding");
    v("consecutive_hysteresis", consecutive_hysteresis, "count only overflows in a row");
    v("min_loss_scale", min_loss_scale, "an overflow at this scale ends the run");
  }
};

/// A dtype by one of the names that DeepSpeed's users write: "fp32", "bf16", "float16".
template <>
struct EnumNames<DType> {
  static constexpr std::array<std::pair<DType, std::string_view>, 8> value{{{DType::f32, "fp32"},
                                                                            {DType::bf16, "bf16"},
                                                                            {DType::f16, "fp16"},
                                                                            {DType::f32, "float32"},
                                                                            {DType::bf16, "bfloat16"},
                                                                            {DType::f16, "float16"},
                                                                            {DType::f32, "float"},
                                                                            {DType::f16, "half"}}};
};

struct DsDataTypes {
  Setting<DType> grad_accum_dtype;

  template <class V>
  void visit(V& v) {
    v("grad_accum_dtype", grad_accum_dtype,
      "dtype in which gradients accumulate over micro-batches: fp32, or the dtype of computation, which is the "
      "default");
  }
};

struct DsZero {
  Setting<int> stage{0};
  Auto<bool> overlap_comm;
  Auto<int64_t> reduce_bucket_size;
  Auto<int64_t> allgather_bucket_size;
  Setting<int64_t> mics_shard_size{int64_t{-1}};
  Setting<bool> mics_hierarchical_params_gather{false};
  Setting<bool> zero_quantized_weights{false}, zero_quantized_gradients{false};
  Setting<int64_t> zero_hpz_partition_size{int64_t{1}};
  Setting<bool> zero_quantized_nontrainable_weights{false};
  DsLoco zeropp_loco_param;
  DsLiveParameters live;
  Auto<int64_t> sub_group_size;
  DsOffloadOptimizer offload_optimizer;
  DsOffloadParam offload_param;
  Setting<bool> cpu_offload{false}, cpu_offload_param{false}, cpu_offload_params{false};

  template <class V>
  void visit(V& v) {
    v("stage", stage,
      "what is sharded over the ranks. 0: nothing; 1: the optimizer; 2: also gradients; 3: also parameters");
    v("overlap_comm", overlap_comm,
      "communicate while computing, which changes no result; default: true at every stage (DeepSpeed: at stage 3)");
    v("reduce_bucket_size", reduce_bucket_size,
      "the most elements of gradients in one collective. Consecutive Units (the embedding, each block, the head) that "
      "fit it together share a collective; default: each Unit has its own (DeepSpeed: 5e8); auto: hidden_size^2");
    v("allgather_bucket_size", allgather_bucket_size,
      "the same for the collectives that exchange updated parameters at stages 1 and 2; auto: the default");
    v("mics_shard_size", mics_shard_size,
      "MiCS, at stage 3: so many data-parallel ranks share out the states, and the others hold replicas, as with "
      "training.parallelism_config.dp_replicate_size; -1: all share them out");
    v("mics_hierarchical_params_gather", mics_hierarchical_params_gather,
      "with mics_shard_size: parameters are gathered between hosts first and then inside each; ranks of a host are "
      "those of LOCAL_WORLD_SIZE, or of mpirun");
    v("zero_quantized_weights", zero_quantized_weights,
      "ZeRO++, at stage 3: passes gather parameters as 8-bit codes with a scale for each 512 of them; masters, "
      "checkpoints and exports keep the values");
    v("zero_hpz_partition_size", zero_hpz_partition_size,
      "ZeRO++, at stage 3: so many neighbours, the ranks of a host best, keep what the first gather after an update "
      "brings, and later gathers ask them alone; 1: they ask all ranks");
    v("zero_quantized_gradients", zero_quantized_gradients,
      "ZeRO++, at stage 3: gradients are added in two hops, among the ranks of each host and then between hosts, as "
      "codes of training.quantized_gradient_bits bits");
    v("zero_quantized_nontrainable_weights", zero_quantized_nontrainable_weights,
      "at stage 3: frozen matrices and tables are kept, gathered and read as 8-bit codes with a scale for each 32 of "
      "them");
    v("zeropp_loco_param", zeropp_loco_param, "");
    live.visit(v);
    v("sub_group_size", sub_group_size,
      "with offload_optimizer to nvme: the most elements that are updated at once, a tile, which changes no result; "
      "more than 4194304 are not taken; auto: as many");
    v("offload_optimizer", offload_optimizer, "");
    v("offload_param", offload_param, "");
    v("cpu_offload", cpu_offload, "an older name of offload_optimizer.device = \"cpu\"");
    v("cpu_offload_param", cpu_offload_param, "an older name of offload_param.device = \"cpu\"");
    v("cpu_offload_params", cpu_offload_params, "the same");
  }
};

struct DsActivationCheckpointing {
  Setting<int64_t> number_checkpoints;
  Setting<bool> cpu_checkpointing{false};
  Setting<bool> contiguous_memory_optimization{false};
  Setting<bool> partition_activations{false};

  template <class V>
  void visit(V& v) {
    v("number_checkpoints", number_checkpoints,
      "with full recompute: how many inputs of blocks are kept; the blocks between two of them are computed again "
      "together; default: every block's input is kept");
    v("cpu_checkpointing", cpu_checkpointing, "with full recompute: keep these inputs in the host pool");
    v("contiguous_memory_optimization", contiguous_memory_optimization,
      "with full recompute: keep these inputs in one block that is allocated once");
    v("partition_activations", partition_activations,
      "with full recompute: each of the ranks that share matrices keeps a part of these inputs, and they are gathered "
      "in the backward pass");
  }
};

/// tensorboard and csv_monitor.
struct DsMonitor {
  Setting<bool> enabled{false};
  Setting<std::string> output_path{std::string()};
  Setting<std::string> job_name{std::string("DeepSpeedJobName")};

  template <class V>
  void visit(V& v) {
    v("enabled", enabled, "write loss, learning rate, gradient norm and speed of every step");
    v("output_path", output_path, "the folder to write to; default: training.output_dir");
    v("job_name", job_name, "name of a folder in output_path");
  }
};

struct DsCommsLogger {
  Setting<bool> enabled{false};
  Setting<bool> prof_all{true};
  Setting<bool> verbose{false};
  Setting<std::vector<std::string>> prof_ops{std::vector<std::string>()};

  template <class V>
  void visit(V& v) {
    v("enabled", enabled, "print the number, bytes, time and rate of rank 0's collectives at the end of the run");
    v("prof_all", prof_all, "report all collectives; false: those in prof_ops");
    v("prof_ops", prof_ops, "names of collectives: all_gather, reduce_scatter, all_reduce, ...");
    v("verbose", verbose, "print each collective after its step, too");
  }
};

struct DsFlopsProfiler {
  Setting<bool> enabled{false};
  Setting<int64_t> profile_step{int64_t{1}};
  Setting<int64_t> module_depth{int64_t{-1}};
  Setting<int64_t> top_modules{int64_t{1}};
  Setting<bool> detailed{true};
  Setting<std::string> output_file;
  Setting<double> recompute_fwd_factor{0.0};

  template <class V>
  void visit(V& v) {
    v("enabled", enabled, "report the time and the FLOPs of one step of rank 0 by pass, operation and module");
    v("profile_step", profile_step,
      "the step to profile; the first three also allocate memory that later ones use again");
    v("module_depth", module_depth, "modules to show. 0: the model; 1: also embedding, blocks and head; -1: all");
    v("top_modules", top_modules, "how many kinds of modules to show at each depth, the longest first");
    v("detailed", detailed, "show each module, too");
    v("output_file", output_file, "the file to write the report to; default: it is printed");
    v("recompute_fwd_factor", recompute_fwd_factor,
      "forward passes that DeepSpeed's estimate of a step adds for recomputation: 1 with full recompute; the counted "
      "FLOPs do not depend on it");
  }
};

struct DsConfig {
  Auto<int64_t> train_batch_size;
  Auto<int64_t> train_micro_batch_size_per_gpu;
  Auto<int64_t> gradient_accumulation_steps;
  DsOptimizer optimizer;
  DsScheduler scheduler;
  DsBf16 bf16;
  DsFp16 fp16;
  DsZero zero_optimization;
  Auto<double> gradient_clipping;
  DsDataTypes data_types;
  DsActivationCheckpointing activation_checkpointing;
  DsAio aio;
  Setting<DType> communication_data_type, seq_parallel_communication_data_type;
  Setting<bool> prescale_gradients{false};
  Setting<double> gradient_predivide_factor{1.0};
  Setting<int64_t> seed;
  Setting<int64_t> steps_per_print;
  DsMonitor tensorboard;
  DsMonitor csv_monitor;
  Setting<bool> dump_state{false};
  Setting<bool> memory_breakdown{false};
  Setting<bool> wall_clock_breakdown{false};
  Setting<int64_t> sequence_parallel_size{int64_t{1}};
  DsTensorParallel tensor_parallel;
  DsPipeline pipeline;
  DsExpertParallel expert_parallel;
  DsCommsLogger comms_logger;
  DsFlopsProfiler flops_profiler;
  DsElasticity elasticity;
  DsCompressionTraining compression_training;

  template <class V>
  void visit(V& v) {
    v("train_batch_size", train_batch_size, "sequences per update, over all ranks; auto <- the product");
    v("train_micro_batch_size_per_gpu", train_micro_batch_size_per_gpu,
      "sequences per rank and forward pass; auto <- training.per_device_train_batch_size");
    v("gradient_accumulation_steps", gradient_accumulation_steps,
      "micro-batches per update; auto <- training.gradient_accumulation_steps");
    v("optimizer", optimizer, "");
    v("scheduler", scheduler, "");
    v("bf16", bf16, "");
    v("fp16", fp16, "");
    v("zero_optimization", zero_optimization, "");
    v("gradient_clipping", gradient_clipping,
      "largest global norm of the gradients, 0 = no clipping; auto <- training.max_grad_norm");
    v("data_types", data_types, "");
    v("activation_checkpointing", activation_checkpointing, "");
    v("aio", aio, "");
    v("communication_data_type", communication_data_type,
      "dtype in which ranks send gradients to each other; sums are fp32; default: data_types.grad_accum_dtype");
    v("seq_parallel_communication_data_type", seq_parallel_communication_data_type,
      "the same with sp_size, where it wins as in DeepSpeed");
    v("prescale_gradients", prescale_gradients,
      "divide gradients by the number of ranks before they are summed; if neither this nor gradient_predivide_factor "
      "is "
      "given, they are divided too");
    v("gradient_predivide_factor", gradient_predivide_factor,
      "without prescale_gradients: divide by this before the sum, and by ranks / this after it");
    v("seed", seed, "the seed of initial weights, data order and dropout");
    v("steps_per_print", steps_per_print,
      "updates between two lines of output, unless training.logging_steps is given");
    v("tensorboard", tensorboard, "");
    v("csv_monitor", csv_monitor, "");
    v("dump_state", dump_state,
      "print every resolved value and its reason when the run begins, as `nought check` does");
    v("memory_breakdown", memory_breakdown,
      "report the bytes in use on rank 0 after each phase of a step, in lines and in metrics.jsonl");
    v("wall_clock_breakdown", wall_clock_breakdown,
      "report the times of phases and communication of every step on rank 0, in lines and in metrics.jsonl");
    v("sequence_parallel_size", sequence_parallel_size, "as training.parallelism_config.sp_size");
    v("tensor_parallel", tensor_parallel, "");
    v("pipeline", pipeline, "");
    v("expert_parallel", expert_parallel, "");
    v("comms_logger", comms_logger, "");
    v("flops_profiler", flops_profiler, "");
    v("elasticity", elasticity, "");
    v("compression_training", compression_training, "");
  }
};

/// The rules of all known keys of ds_config.json that DsConfig does not implement.
std::span<const KeyRule> ds_key_rules();

/// Reads the section "deepspeed" of a run's configuration. A line is added to `warnings` for each key without effect.
/// ConfigError for unknown and refused keys, and for wrong types.
DsConfig read_ds_config(const Json& json, const Origins& origins, std::vector<std::string>& warnings,
                        bool on_gpu = false);

}  // namespace nought
