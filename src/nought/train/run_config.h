// RUN.json as it was written: model, data, training and deepspeed, with the overrides of the command line applied.
//
// `training` has the names, meanings and (where nothing else is said) defaults of Hugging Face's TrainingArguments.
// Paths in it are relative to the current directory. resolve() in run_plan.h turns it into plain numbers.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nought/base/visit.h"
#include "nought/optim/schedule.h"

namespace nought {

/// The schedules that training.lr_scheduler_type may name; DeepSpeed's own are named in its scheduler section.
template <>
struct EnumNames<ScheduleType> {
  static constexpr std::array<std::pair<ScheduleType, std::string_view>, 4> value{{
      {ScheduleType::linear, "linear"},
      {ScheduleType::cosine, "cosine"},
      {ScheduleType::constant, "constant"},
      {ScheduleType::constant_with_warmup, "constant_with_warmup"},
  }};
};

/// Names that Hugging Face gives to implementations of AdamW; they differ in speed there, here they are one.
enum class OptimizerName { adamw_torch, adamw_torch_fused, adamw_hf, adamw_apex_fused };

template <>
struct EnumNames<OptimizerName> {
  static constexpr std::array<std::pair<OptimizerName, std::string_view>, 4> value{{
      {OptimizerName::adamw_torch, "adamw_torch"},
      {OptimizerName::adamw_torch_fused, "adamw_torch_fused"},
      {OptimizerName::adamw_hf, "adamw_hf"},
      {OptimizerName::adamw_apex_fused, "adamw_apex_fused"},
  }};
};

struct DataConfig {
  std::vector<std::string> files;
  Setting<std::string> tokenizer{"bytes"};
  Setting<int64_t> seq_length;
  Setting<double> validation_fraction{0.0};

  template <class V>
  void visit(V& v) {
    v("files", files, "text files: paths, or globs where ** crosses folders");
    v("tokenizer", tokenizer, "bytes, or the path of a tokenizer");
    v("seq_length", seq_length, "tokens per sequence; default: an inline model's max_position_embeddings");
    v("validation_fraction", validation_fraction, "part of the tokens that is kept out of training");
  }
};

struct TrainingConfig {
  Setting<int64_t> max_steps{-1};
  Setting<double> num_train_epochs{3.0};
  Setting<int64_t> per_device_train_batch_size{8};
  Setting<int64_t> gradient_accumulation_steps{1};
  Setting<double> learning_rate{5e-5};
  Setting<double> weight_decay{0.0};
  Setting<double> adam_beta1{0.9};
  Setting<double> adam_beta2{0.999};
  Setting<double> adam_epsilon{1e-8};
  Setting<double> max_grad_norm{1.0};
  Setting<OptimizerName> optim{OptimizerName::adamw_torch};
  Setting<ScheduleType> lr_scheduler_type{ScheduleType::linear};
  Setting<int64_t> warmup_steps{0};
  Setting<double> warmup_ratio{0.0};
  Setting<bool> bf16{false};
  Setting<bool> fp16{false};
  Setting<bool> gradient_checkpointing{false};
  Setting<int64_t> seed{42};
  Setting<int64_t> logging_steps{10};
  Setting<int64_t> save_steps{500};
  Setting<int64_t> save_total_limit;
  Setting<std::string> output_dir{"out"};

  template <class V>
  void visit(V& v) {
    v("max_steps", max_steps, "updates to make; -1 = by num_train_epochs");
    v("num_train_epochs", num_train_epochs, "passes over the data, where max_steps is not given");
    v("per_device_train_batch_size", per_device_train_batch_size, "sequences per rank and forward");
    v("gradient_accumulation_steps", gradient_accumulation_steps, "micro-batches per update");
    v("learning_rate", learning_rate, "the schedule's peak");
    v("weight_decay", weight_decay, "AdamW's decay of weights; norms and biases have none");
    v("adam_beta1", adam_beta1, "decay of the first moment");
    v("adam_beta2", adam_beta2, "decay of the second moment");
    v("adam_epsilon", adam_epsilon, "added to the root of the second moment");
    v("max_grad_norm", max_grad_norm, "largest global norm of the gradients; 0 = no clipping");
    v("optim", optim, "all of them are AdamW");
    v("lr_scheduler_type", lr_scheduler_type, "shape of the learning rate after the warmup");
    v("warmup_steps", warmup_steps, "updates in which the learning rate rises from 0");
    v("warmup_ratio", warmup_ratio, "the same as a part of all updates; warmup_steps goes before it");
    v("bf16", bf16, "compute in bfloat16, with fp32 master weights");
    v("fp16", fp16, "not supported: use bf16");
    v("gradient_checkpointing", gradient_checkpointing, "recompute every block in the backward pass");
    v("seed", seed, "of initial weights, data order and dropout");
    v("logging_steps", logging_steps, "updates between two lines of output (Hugging Face: 500)");
    v("save_steps", save_steps, "updates between two checkpoints; 0 = only at the end");
    v("save_total_limit", save_total_limit, "checkpoints to keep; not given or 0 = all");
    v("output_dir", output_dir, "folder of checkpoints and metrics.jsonl");
  }
};

struct RunConfig {
  Json model;  // a folder's path or a config.json's content
  DataConfig data;
  TrainingConfig training;
  Json deepspeed;  // a ds_config.json's content, also where RUN.json gave its path

  Origins origins;  // where each value was written

  template <class V>
  void visit(V& v) {
    v("model", model, "a Hugging Face folder, or the content of its config.json");
    v("data", data, "");
    v("training", training, "");
    v("deepspeed", deepspeed, "the path of a ds_config.json, or its content");
  }
};

/// Reads RUN.json (an empty path stands for an empty file), then applies "a.b=c" overrides in order, then checks
/// names and types. ConfigError and IoError name the place.
RunConfig load_run_config(const std::string& path, std::span<const std::string> overrides);

/// The same for JSON that is already parsed.
RunConfig make_run_config(Json json, const std::string& name, std::span<const std::string> overrides = {});

}  // namespace nought
