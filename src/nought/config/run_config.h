// RunConfig: RUN.json as it was written, with the overrides of the command line applied.
//
// `training` has the names and meanings of Hugging Face's TrainingArguments, and their defaults unless the help text
// says otherwise. The paths of model, data, adapter and deepspeed are relative to the file, all others to the current
// directory. resolve() in run_plan.h turns a RunConfig into plain numbers.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nought/autograd/fp8_options.h"
#include "nought/autograd/recompute_options.h"
#include "nought/base/visit.h"
#include "nought/config/alignment_config.h"
#include "nought/config/comm_hook.h"
#include "nought/config/data_config.h"
#include "nought/config/ds_zeropp.h"
#include "nought/config/local_steps_config.h"
#include "nought/config/optimizer_args.h"
#include "nought/config/parallelism_args.h"
#include "nought/config/qat_args.h"
#include "nought/config/quantization_args.h"
#include "nought/config/run_plan.h"
#include "nought/config/schedule_args.h"
#include "nought/data/formats.h"
#include "nought/optim/loss_scaler.h"
#include "nought/optim/schedule.h"

namespace nought {

/// Hugging Face's names of optimizers, and lamb and muon. All names that begin with adamw are the same AdamW here;
/// those with 8bit keep its states in 8 bits, and nothing is paged.
enum class OptimizerName {
  adamw_torch,
  adamw_torch_fused,
  adamw_hf,
  adamw_apex_fused,
  adamw_8bit,
  adamw_bnb_8bit,
  sgd,
  adagrad,
  rmsprop,
  lion_32bit,
  lion_8bit,
  lamb,
  muon,
  paged_adamw,
  paged_adamw_32bit,
  paged_adamw_8bit,
  paged_lion_32bit,
  paged_lion_8bit,
};

template <>
struct EnumNames<OptimizerName> {
  static constexpr std::array<std::pair<OptimizerName, std::string_view>, 18> value{{
      {OptimizerName::adamw_torch, "adamw_torch"},
      {OptimizerName::adamw_torch_fused, "adamw_torch_fused"},
      {OptimizerName::adamw_hf, "adamw_hf"},
      {OptimizerName::adamw_apex_fused, "adamw_apex_fused"},
      {OptimizerName::adamw_8bit, "adamw_8bit"},
      {OptimizerName::adamw_bnb_8bit, "adamw_bnb_8bit"},
      {OptimizerName::sgd, "sgd"},
      {OptimizerName::adagrad, "adagrad"},
      {OptimizerName::rmsprop, "rmsprop"},
      {OptimizerName::lion_32bit, "lion_32bit"},
      {OptimizerName::lion_8bit, "lion_8bit"},
      {OptimizerName::lamb, "lamb"},
      {OptimizerName::muon, "muon"},
      {OptimizerName::paged_adamw, "paged_adamw"},
      {OptimizerName::paged_adamw_32bit, "paged_adamw_32bit"},
      {OptimizerName::paged_adamw_8bit, "paged_adamw_8bit"},
      {OptimizerName::paged_lion_32bit, "paged_lion_32bit"},
      {OptimizerName::paged_lion_8bit, "paged_lion_8bit"},
  }};
};

template <>
struct EnumNames<Recompute> {
  static constexpr std::array<std::pair<Recompute, std::string_view>, 3> value{
      {{Recompute::none, "none"}, {Recompute::selective, "selective"}, {Recompute::full, "full"}}};
};

template <>
struct EnumNames<Fp8Scaling> {
  static constexpr std::array<std::pair<Fp8Scaling, std::string_view>, 3> value{
      {{Fp8Scaling::none, "none"}, {Fp8Scaling::delayed, "delayed"}, {Fp8Scaling::current, "current"}}};
};

template <>
struct EnumNames<OnNonfinite> {
  static constexpr std::array<std::pair<OnNonfinite, std::string_view>, 2> value{
      {{OnNonfinite::stop, "stop"}, {OnNonfinite::skip, "skip"}}};
};

/// torch's names of the levels of TORCH_DISTRIBUTED_DEBUG, in small letters.
enum class DistributedDebug : uint8_t { off, info, detail };

template <>
struct EnumNames<DistributedDebug> {
  static constexpr std::array<std::pair<DistributedDebug, std::string_view>, 3> value{
      {{DistributedDebug::off, "off"}, {DistributedDebug::info, "info"}, {DistributedDebug::detail, "detail"}}};
};

template <>
struct EnumNames<EvalStrategy> {
  static constexpr std::array<std::pair<EvalStrategy, std::string_view>, 3> value{
      {{EvalStrategy::no, "no"}, {EvalStrategy::steps, "steps"}, {EvalStrategy::epoch, "epoch"}}};
};

template <>
struct EnumNames<SaveStrategy> {
  static constexpr std::array<std::pair<SaveStrategy, std::string_view>, 3> value{
      {{SaveStrategy::no, "no"}, {SaveStrategy::steps, "steps"}, {SaveStrategy::epoch, "epoch"}}};
};

/// Hugging Face's names of metrics; it takes them with and without "eval_".
template <>
struct EnumNames<EvalMetric> {
  static constexpr std::array<std::pair<EvalMetric, std::string_view>, 10> value{{
      {EvalMetric::loss, "loss"},
      {EvalMetric::loss, "eval_loss"},
      {EvalMetric::perplexity, "perplexity"},
      {EvalMetric::perplexity, "eval_perplexity"},
      {EvalMetric::bits_per_token, "bits_per_token"},
      {EvalMetric::bits_per_token, "eval_bits_per_token"},
      {EvalMetric::bits_per_byte, "bits_per_byte"},
      {EvalMetric::bits_per_byte, "eval_bits_per_byte"},
      {EvalMetric::reward, "reward"},
      {EvalMetric::reward, "eval_reward"},
  }};
};

/// Options of the parameters whose names match the pattern. The first group that matches counts.
struct ParameterGroupConfig {
  std::string pattern;
  Setting<double> lr_scale{1.0};
  Setting<double> weight_decay;

  template <class V>
  void visit(V& v) {
    v("pattern", pattern, "a regular expression (ECMAScript) that matches a part of the parameter's name");
    v("lr_scale", lr_scale, "factor on the learning rate");
    v("weight_decay", weight_decay, "replaces training.weight_decay, also for norms and biases");
  }
};

template <>
struct EnumNames<AioBackend> {
  static constexpr std::array<std::pair<AioBackend, std::string_view>, 3> value{
      {{AioBackend::automatic, "auto"}, {AioBackend::io_uring, "io_uring"}, {AioBackend::threads, "threads"}}};
};

struct TrainingConfig {
  Setting<int64_t> max_steps{-1};
  Setting<double> num_train_epochs{3.0};
  Setting<int64_t> per_device_train_batch_size{8};
  Setting<int64_t> gradient_accumulation_steps{1};
  Setting<int64_t> virtual_ranks{int64_t{0}};
  Setting<double> learning_rate{5e-5};
  Setting<double> weight_decay{0.0};
  Setting<double> adam_beta1{0.9};
  Setting<double> adam_beta2{0.999};
  Setting<double> adam_epsilon{1e-8};
  Setting<double> max_grad_norm{1.0};
  Setting<OptimizerName> optim{OptimizerName::adamw_torch};
  Setting<std::string> optim_args;
  Setting<std::vector<ParameterGroupConfig>> parameter_groups;
  Setting<bool> weight_decay_all{false};
  Setting<std::vector<std::string>> freeze;
  Setting<std::vector<std::string>> trainable;
  Setting<ScheduleType> lr_scheduler_type{ScheduleType::linear};
  SchedulerArgs lr_scheduler_kwargs;
  Setting<int64_t> warmup_steps{0};
  Setting<double> warmup_ratio{0.0};
  Auto<bool> bf16;
  Setting<bool> fp16{false};
  Setting<Fp8Scaling> fp8{Fp8Scaling::none};
  Setting<int64_t> fp8_amax_history{int64_t{16}};
  Setting<int64_t> fp8_margin{int64_t{0}};
  Setting<bool> stochastic_rounding{true};
  Setting<bool> resize_vocab{false};
  Setting<bool> gradient_checkpointing{false};
  Setting<Recompute> recompute{Recompute::none};
  Setting<bool> recompute_fp8{false};
  Auto<int64_t> tiled_mlp;
  Auto<int64_t> memory_centric_tiling;
  Setting<double> moe_capacity_factor;
  Setting<bool> moe_drop_tokens{true};
  QuantizedArgs codes;
  QatArgs qat;
  ParallelismArgs parallelism_config;
  CommHookArgs ddp_comm_hook;
  DilocoArgs diloco;
  AsyncArgs async_data_parallel;
  Setting<int64_t> seed{42};
  Setting<int64_t> logging_steps{10};
  Json report_to;
  Setting<std::string> logging_dir, run_name;
  Setting<EvalStrategy> eval_strategy{EvalStrategy::no};
  Setting<int64_t> eval_steps;
  Setting<int64_t> per_device_eval_batch_size;
  Setting<SaveStrategy> save_strategy{SaveStrategy::steps};
  Setting<int64_t> save_steps{500};
  Setting<int64_t> save_total_limit;
  Auto<bool> async_save;
  Json resume_from_checkpoint;
  Setting<bool> load_best_model_at_end{false};
  Setting<EvalMetric> metric_for_best_model{EvalMetric::loss};
  Setting<bool> greater_is_better;
  Setting<std::string> sample_prompt;
  Setting<int64_t> sample_steps{int64_t{100}};
  Setting<int64_t> sample_max_new_tokens{int64_t{64}};
  Setting<OnNonfinite> on_nonfinite{OnNonfinite::stop};
  Setting<int64_t> ddp_timeout{int64_t{1800}};
  Setting<DistributedDebug> distributed_debug{DistributedDebug::off};
  Setting<double> spiky_loss_factor;
  Setting<int64_t> check_weight_hash_across_dp_replicas_interval{int64_t{0}};
  Json receipt;
  Setting<bool> log_straggler{false};
  Setting<bool> delayed_update{false};
  Setting<int64_t> delayed_update_warmup_steps{int64_t{40}};
  Auto<bool> update_beside_backward;
  Auto<std::string> offload_gradients;
  Setting<std::string> offload_inputs{std::string("device")};
  Setting<AioBackend> aio_backend{AioBackend::automatic};
  Setting<std::string> device_memory, host_memory;
  Setting<std::string> max_shard_size{"5GB"};
  Setting<std::string> output_dir{"out"};

  /// Whether the run continues a checkpoint.
  bool resumes() const { return !resume_from_checkpoint.is_null() && resume_from_checkpoint != false; }

  template <class V>
  void visit(V& v) {
    v("max_steps", max_steps, "updates to make; -1 = by num_train_epochs");
    v("num_train_epochs", num_train_epochs, "passes over the data, if max_steps is not given");
    v("per_device_train_batch_size", per_device_train_batch_size, "sequences per rank and forward pass");
    v("gradient_accumulation_steps", gradient_accumulation_steps, "micro-batches per update");
    v("virtual_ranks", virtual_ranks,
      "the number of ranks, a power of two, whose bits the run has on any that divide it: gradients, losses and norms "
      "meet in one binary tree, in fp32; gradient_accumulation_steps is this / ranks; 0 = sums follow the ranks");
    v("learning_rate", learning_rate, "the highest learning rate of the schedule");
    v("weight_decay", weight_decay, "weight decay; norms and biases have none");
    v("adam_beta1", adam_beta1, "decay of the first moment");
    v("adam_beta2", adam_beta2, "decay of the second moment");
    v("adam_epsilon", adam_epsilon, "added to the root of the second moment");
    v("max_grad_norm", max_grad_norm, "largest global norm of the gradients; 0 = no clipping");
    v("optim", optim,
      "the optimizer; names that begin with adamw are the same AdamW; those with 8bit keep the states in 8 bits");
    v("optim_args", optim_args, "the optimizer's own parameters, as \"momentum=0.9,nesterov=true\"");
    v("parameter_groups", parameter_groups,
      "a list of {pattern, lr_scale, weight_decay} for parameters with other options");
    v("weight_decay_all", weight_decay_all, "decay norms and biases as well");
    v("freeze", freeze,
      "a list of patterns as in parameter_groups: what matches is not trained, and has no gradient and no states");
    v("trainable", trainable, "the same for what is trained although freeze matches it");
    v("lr_scheduler_type", lr_scheduler_type, "shape of the learning rate after the warmup");
    v("lr_scheduler_kwargs", lr_scheduler_kwargs, "");
    v("warmup_steps", warmup_steps, "number of updates in which the learning rate rises from 0");
    v("warmup_ratio", warmup_ratio, "the same as a fraction of all updates; warmup_steps has precedence");
    v("bf16", bf16,
      "compute in bfloat16, with fp32 master weights; auto = if every rank's CPU has units for it; default: false");
    v("fp16", fp16, "compute in half precision, with fp32 master weights and loss scaling (deepspeed.fp16)");
    v("fp8", fp8,
      "round the factors of the blocks' linear layers to 8 bits: inputs and weights to E4M3, gradients to E5M2; the "
      "scale comes from the largest values of earlier steps (delayed) or of the tensor itself (current)");
    v("fp8_amax_history", fp8_amax_history, "delayed: how many earlier steps decide the scale");
    v("fp8_margin", fp8_margin, "lowers each scale by 2 to this power below the largest possible one");
    v("stochastic_rounding", stochastic_rounding,
      "round 16-bit weights and states without fp32 masters at random, so that small updates count on average; "
      "false = to the nearest");
    v("resize_vocab", resize_vocab,
      "the embedding and the head grow to the size of a larger tokenizer; new rows begin as the mean of the old ones");
    v("gradient_checkpointing", gradient_checkpointing, "the same as recompute = full");
    v("recompute", recompute,
      "what the backward pass computes again: nothing (none), norms and activations, but no product (selective), or "
      "whole blocks (full)");
    v("recompute_fp8", recompute_fp8,
      "with full recompute: keep the inputs of blocks in MXFP8 (E4M3, with a scale for 32 values), half of bf16; what "
      "runs again reads rounded inputs, and gradients are those of rounded activations");
    v("tiled_mlp", tiled_mlp,
      "tiles of tokens in which the MLP of a layer is computed, each again in the backward pass, so that its wide "
      "activations of all tokens never exist; true is auto: as many as tokens of a rank / hidden size; false = 1, at "
      "once; products of experts are not tiled, but for the shared one's");
    v("memory_centric_tiling", memory_centric_tiling,
      "tiles in which the largest matrices of a Unit are gathered, computed with, reduced and released one after "
      "another at ZeRO stages 2 and 3, so that no rank needs room for a whole Unit; auto = as few as fit "
      "training.device_memory; 1 = none");
    v("moe_capacity_factor", moe_capacity_factor,
      "an expert takes at most this times its even share of a micro-batch's tokens; not given = all that choose it");
    v("moe_drop_tokens", moe_drop_tokens,
      "whether tokens beyond the capacity skip the expert; false = the capacity has no effect");
    v("ddp_comm_hook", ddp_comm_hook, "how gradients are summed over the ranks");
    codes.visit(v);
    qat.visit(v);
    v("parallelism_config", parallelism_config, "");
    v("diloco", diloco, "");
    v("async_data_parallel", async_data_parallel, "");
    v("seed", seed, "the seed of initial weights, data order and dropout");
    v("logging_steps", logging_steps,
      "updates between two lines of output (Hugging Face: 500); `--quiet` prints none of them");
    v("report_to", report_to,
      "\"tensorboard\", or a list with it, or \"all\": losses, norms and rates of each step go to event files in "
      "logging_dir, with transformers' names; metrics.jsonl has them in any case; other programs are not written to");
    v("logging_dir", logging_dir, "with report_to tensorboard: its folder; default: runs in output_dir");
    v("run_name", run_name, "with report_to tensorboard: the folder in logging_dir that this run's files go to");
    v("eval_strategy", eval_strategy,
      "when to validate before the end of training: no, every eval_steps, or every epoch; the end always validates");
    v("eval_steps", eval_steps, "updates between two validations; default: logging_steps");
    v("per_device_eval_batch_size", per_device_eval_batch_size,
      "sequences per rank and forward pass of a validation; default: as in training (Hugging Face: 8)");
    v("save_strategy", save_strategy,
      "when to save before the end: no, every save_steps, or every epoch; the end, and a signal, always save");
    v("save_steps", save_steps,
      "updates between two checkpoints; 0 = only at the end, and when a signal stops the run");
    v("save_total_limit", save_total_limit,
      "checkpoints to keep; the best one is among them with load_best_model_at_end; not given or 0 = all");
    v("async_save", async_save,
      "write checkpoints on a thread beside the training, which waits while masters and optimizer states are copied "
      "and an update is due, and no longer. Copies take 12 bytes for each parameter whose states a rank owns (fp32 "
      "states); offloaded states are read where they lie. false: the training waits for each checkpoint; auto: true "
      "where there "
      "is room, by training.device_memory and training.host_memory or else this machine's memory");
    v("resume_from_checkpoint", resume_from_checkpoint,
      "true = continue the last checkpoint of output_dir; a step = that one; a path = a checkpoint, or the last one in "
      "a folder; not given or false = begin a run");
    v("load_best_model_at_end", load_best_model_at_end,
      "export the weights of the best checkpoint; every checkpoint is validated before it is saved");
    v("metric_for_best_model", metric_for_best_model,
      "which number of the validation decides what the best checkpoint is");
    v("greater_is_better", greater_is_better,
      "whether the largest metric is the best; default: of reward it is, of all others the smallest");
    v("sample_prompt", sample_prompt, "text that is continued during training, to see what the model has learned");
    v("sample_steps", sample_steps, "updates between two such samples");
    v("sample_max_new_tokens", sample_max_new_tokens, "tokens of a sample, each the likeliest one");
    v("on_nonfinite", on_nonfinite,
      "what to do if a loss or gradient is not finite: stop and name the place, or skip the update; with fp16 the loss "
      "scale decides");
    v("ddp_timeout", ddp_timeout,
      "seconds that a collective may take before the run ends with a table of what every rank does; default: "
      "DEEPSPEED_TIMEOUT, which is in minutes, or 1800");
    v("distributed_debug", distributed_debug,
      "detail: ranks compare every collective before it runs, and a mismatch is named; off and info do not; default: "
      "TORCH_DISTRIBUTED_DEBUG, or off");
    v("spiky_loss_factor", spiky_loss_factor,
      "a step whose loss or gradient norm is more than this times its average, or not finite, is computed again before "
      "the update: other bits are a fault of the hardware, the same bits one of the data or the model; not given = no "
      "step is");
    v("check_weight_hash_across_dp_replicas_interval", check_weight_hash_across_dp_replicas_interval,
      "updates between two comparisons of the ranks' parameters by hashes, which name the rank that differs and end "
      "the run; each save is preceded by one; optimizer states too at stage 0, gathered parameters at stage 3; 0 = "
      "none");
    v("receipt", receipt,
      "write receipt.jsonl: a chain of SHA-256 hashes over configuration, data, version and start weights, and every "
      "so "
      "many updates the loss, the gradient's norm, the samples and the weights, which `nought verify` computes again; "
      "{\"every\": K}, or true for every 100; each checkpoint has a line, too; not given or false = none");
    v("log_straggler", log_straggler,
      "compare the ranks' times of forward, backward, communication and data every logging_steps, in metrics.jsonl and "
      "monitors, and name a rank that stays slower than the others");
    v("delayed_update", delayed_update,
      "put every update off by one step, and compute it beside that step's passes: gradients are of the parameters "
      "before, and what the update reads, computes and writes takes no time of its own; not with Lamb and Muon");
    v("delayed_update_warmup_steps", delayed_update_warmup_steps,
      "with delayed_update: so many updates are made at once before");
    v("update_beside_backward", update_beside_backward,
      "update what has its gradients while the backward pass goes on. Where clipping, a loss scale, on_nonfinite = "
      "skip or spiky_loss_factor stand before an update, it is a guess that they change nothing, and undone to the bit "
      "where they do: that takes room for masters and optimizer states twice. auto: where states are in files, and on "
      "the host beside a GPU if nothing is to be undone or training.host_memory holds it; not where there is no room");
    v("offload_gradients", offload_gradients,
      "where sums of gradients wait for the update, if offload_optimizer.device is nvme. file: beside the optimizer's "
      "states; a micro-batch writes them, and reads them if it is not the step's first; device: in memory; auto: file "
      "if offload_param.device is nvme and its max_in_cpu 0, else device");
    v("offload_inputs", offload_inputs,
      "with recompute = full: where the inputs of blocks wait for the backward pass. device; host, which "
      "activation_checkpointing.cpu_checkpointing says too; file: written behind the forward pass to a file beside the "
      "optimizer's states or the parameters (device nvme), and read ahead of the backward pass");
    v("aio_backend", aio_backend,
      "how files that states are offloaded to are read and written: io_uring, threads, or threads only where the "
      "system forbids io_uring (auto); deepspeed.aio has the rest");
    v("device_memory", device_memory,
      "memory budget of a rank, as \"2GiB\"; a run that exceeds it stops and names changes that fit; not given = none");
    v("host_memory", host_memory,
      "the same of the host's RAM, as what was moved there takes it; on a CPU, whose memory that is, of all of a "
      "rank's tensors but those in files");
    v("max_shard_size", max_shard_size, "the largest file of the exported weights, as \"5GB\"");
    v("output_dir", output_dir, "folder of checkpoints and metrics.jsonl");
  }
};

struct RunConfig {
  Json model;  // a folder's path or a config.json's content
  DataConfig data;
  TrainingConfig training;
  AlignmentConfig alignment;
  Json adapter, peft_config;  // an object of peft's keys, or an adapter's folder
  QuantizationArgs quantization_config;
  Json deepspeed;  // a ds_config.json's content, also where RUN.json gave its path or that of a config of accelerate

  Origins origins;                    // where each value was written
  std::vector<std::string> warnings;  // one line for each key that is known and has no effect
  int64_t accelerate_processes = 0;   // num_processes of a config of accelerate; 0 = not given
  bool on_gpu = false;                // where ranks compute: see load_run_config()

  template <class V>
  void visit(V& v) {
    v("model", model,
      "a Hugging Face folder, a checkpoint, the output folder of a run, the name of a model in the hub's cache "
      "(Org/Name), or the content of a config.json");
    v("data", data, "");
    v("training", training, "");
    v("alignment", alignment, "");
    v("adapter", adapter,
      "an adapter (LoRA) to train on the frozen model: peft's keys (docs/adapters.md), or the folder of one to go on "
      "with");
    v("peft_config", peft_config, "another name of adapter");
    v("quantization_config", quantization_config, "");
    v("deepspeed", deepspeed,
      "the path of a ds_config.json or of a config of accelerate (YAML), or a ds_config.json's content");
  }
};

/// Reads RUN.json, applies the overrides "a.b=c" in order, then checks names and types. An empty path stands for an
/// empty file. on_gpu: ranks compute on GPUs, as the command line says. ConfigError and IoError name the place.
RunConfig load_run_config(const std::string& path, std::span<const std::string> overrides, bool on_gpu = false);

/// The content of RUN.json, with paths that hold from the current directory (run_paths.h).
Json read_run_file(const std::string& path, std::vector<std::string>& warnings);

/// load_run_config() of a content that was read already. `name` stands for the file in messages; `warnings` are passed
/// on.
RunConfig make_run_config(Json json, const std::string& name, std::span<const std::string> overrides = {},
                          std::vector<std::string> warnings = {}, bool on_gpu = false);

}  // namespace nought
