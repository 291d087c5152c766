// DeepSpeed's ds_config.json: reads an unmodified one, and accounts for every key in it.
//
// Design goals: a key is implemented (the visit lists below), has no effect here (a named warning), or would change
// results or memory in a way that is not implemented (an error with the reason); a key at DeepSpeed's default is fine.
// The two lists, the visit() members and ds_key_rules(), are disjoint and together are all known keys.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nought/base/visit.h"
#include "nought/optim/schedule.h"

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

  template <class V>
  void visit(V& v) {
    v("lr", lr, "peak learning rate; auto <- training.learning_rate");
    v("betas", betas, "decay of the two moments; auto <- training.adam_beta1, training.adam_beta2");
    v("eps", eps, "added to the root of the second moment; auto <- training.adam_epsilon");
    v("weight_decay", weight_decay, "auto <- training.weight_decay");
    v("adam_w_mode", adam_w_mode, "Adam only: decoupled weight decay, as AdamW has it always");
    v("torch_adam", torch_adam, "selects an implementation in DeepSpeed; the arithmetic is the same");
  }
};

struct DsOptimizer {
  Setting<std::string> type;
  DsOptimizerParams params;

  template <class V>
  void visit(V& v) {
    v("type", type, "Adam or AdamW");
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

  template <class V>
  void visit(V& v) {
    v("warmup_min_lr", warmup_min_lr, "WarmupLR, WarmupDecayLR: lowest rate; auto <- 0");
    v("warmup_max_lr", warmup_max_lr, "WarmupLR, WarmupDecayLR: highest rate; auto <- training.learning_rate");
    v("warmup_num_steps", warmup_num_steps, "length of the ramp; auto <- training.warmup_steps or warmup_ratio");
    v("warmup_type", warmup_type, "shape of the ramp");
    v("total_num_steps", total_num_steps, "WarmupDecayLR, WarmupCosineLR: length of the run; auto <- computed");
    v("warmup_min_ratio", warmup_min_ratio, "WarmupCosineLR: start of the ramp, as a fraction of optimizer.params.lr");
    v("cos_min_ratio", cos_min_ratio, "WarmupCosineLR: end of the cosine, as a fraction of optimizer.params.lr");
  }
};

struct DsScheduler {
  Setting<std::string> type;
  DsSchedulerParams params;

  template <class V>
  void visit(V& v) {
    v("type", type, "WarmupLR, WarmupDecayLR or WarmupCosineLR");
    v("params", params, "the schedule's parameters");
  }
};

struct DsPrecision {
  Auto<bool> enabled;

  template <class V>
  void visit(V& v) {
    v("enabled", enabled, "compute in this dtype; auto <- training.bf16, training.fp16");
  }
};

struct DsZero {
  Setting<int> stage{0};
  Auto<bool> overlap_comm;

  template <class V>
  void visit(V& v) {
    v("stage", stage, "0: nothing is sharded; 1: optimizer; 2: and gradients; 3: and parameters");
    v("overlap_comm", overlap_comm, "communicate while computing; default true at stage 3, else false");
  }
};

struct DsConfig {
  Auto<int64_t> train_batch_size;
  Auto<int64_t> train_micro_batch_size_per_gpu;
  Auto<int64_t> gradient_accumulation_steps;
  DsOptimizer optimizer;
  DsScheduler scheduler;
  DsPrecision bf16;
  DsPrecision fp16;
  DsZero zero_optimization;
  Auto<double> gradient_clipping;
  Setting<int64_t> seed;
  Setting<int64_t> steps_per_print;

  template <class V>
  void visit(V& v) {
    v("train_batch_size", train_batch_size, "sequences per update, over all ranks; auto <- the product");
    v("train_micro_batch_size_per_gpu", train_micro_batch_size_per_gpu,
      "sequences per rank and forward; auto <- training.per_device_train_batch_size");
    v("gradient_accumulation_steps", gradient_accumulation_steps,
      "micro-batches per update; auto <- training.gradient_accumulation_steps");
    v("optimizer", optimizer, "");
    v("scheduler", scheduler, "");
    v("bf16", bf16, "");
    v("fp16", fp16, "");
    v("zero_optimization", zero_optimization, "");
    v("gradient_clipping", gradient_clipping, "largest global norm, 0 = off; auto <- training.max_grad_norm");
    v("seed", seed, "of initial weights, data order and dropout");
    v("steps_per_print", steps_per_print,
      "updates between two lines of output, unless training.logging_steps is given");
  }
};

/// What happens to a known key that is not in the visit lists when its value is not a default.
enum class KeyStatus {
  no_effect,  // a warning: results and memory are as they would be
  refused,    // an error
  enabled,    // a free-form section: an error if anything in it says "enabled": true
  gated,      // silent: another key of the section, which has a rule of its own, decides whether it counts
};

struct KeyRule {
  std::string_view path;      // "zero_optimization.reduce_bucket_size"; "a.*" = everything inside a
  std::string_view defaults;  // JSON values that are accepted silently, separated by " | "
  KeyStatus status;
  std::string_view reason;
};

/// Every known key of ds_config.json that is not implemented by DsConfig.
std::span<const KeyRule> ds_key_rules();

/// Reads the section (its place in the run's configuration is "deepspeed"). ConfigError for unknown and refused keys
/// and wrong types; keys without effect are named in `warnings`.
DsConfig read_ds_config(const Json& json, const Origins& origins, std::vector<std::string>& warnings);

}  // namespace nought
