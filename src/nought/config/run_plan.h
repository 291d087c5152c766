// RunPlan: a run's configuration after validation, with every value resolved and the reason of each.
//
// Design goals: whoever runs a plan reads plain numbers; "auto", defaults, aliases and conflicts between RUN.json and
// a ds_config.json are settled here, once (transformers' and DeepSpeed's rules). Non-goals: reading the model's or the
// data's files, allocating anything.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "nought/autograd/fp8_options.h"
#include "nought/autograd/recompute_options.h"
#include "nought/comm/grid.h"
#include "nought/nn/freezing.h"
#include "nought/optim/loss_scaler.h"
#include "nought/optim/options.h"
#include "nought/tensor/dtype.h"

namespace nought {

struct RunConfig;

/// Files that are one part of a mixture.
struct SourcePlan {
  std::vector<std::string> files;  // globs, relative to the current directory
  double weight = 0;               // of all sources, or 0 of all: as much as they hold
};

struct DataPlan {
  std::vector<SourcePlan> sources;
  std::vector<std::string> validation_files;  // globs
  std::string tokenizer = "bytes";
  int64_t seq_length = 0;
  double validation_fraction = 0;  // of the tokens, kept out of training; 0 = none
  bool separate_documents = false;

  bool validates() const { return validation_fraction > 0 || !validation_files.empty(); }
};

/// When a run validates before its end.
enum class EvalStrategy : uint8_t { no, steps, epoch };

/// One resolved value, as `nought check` prints it.
struct Resolved {
  std::string key;     // "learning_rate"
  std::string value;   // "0.001"
  std::string reason;  // "deepspeed: auto <- training.learning_rate"
};

/// Which step is profiled, and what of it is shown (DeepSpeed's flops_profiler).
struct ProfileOptions {
  int64_t step = 1;
  int64_t module_depth = -1;     // 0: the model alone; -1: down to the innermost modules
  int64_t top_modules = 1;       // kinds of modules at each depth
  bool detailed = true;          // every module by itself, too
  std::string output_file = {};  // empty: it is printed
  double recompute_factor = 0;   // forward passes that DeepSpeed's estimate adds for recomputation
};

struct RunPlan {
  std::string model_dir;        // a Hugging Face folder; empty if the model is written inline
  nlohmann::json model_config;  // the inline config.json; null if model_dir is given
  DataPlan data;

  int world_size = 1;
  std::optional<GridSizes> mesh = {};  // the ranks of each axis; not given: all are on the shard axis
  int64_t micro_batch = 1;             // sequences per rank and forward
  int64_t accumulation = 1;            // micro-batches per update
  int64_t train_batch = 1;             // = micro_batch x accumulation x world_size

  DType dtype = DType::f32;                    // of computation; master weights and moments are f32
  std::optional<LossScaleOptions> loss_scale;  // for fp16
  DType gradient_dtype = DType::f32;           // of accumulation
  DType wire_dtype = DType::f32;               // of gradients on their way between ranks
  Fp8Options fp8 = {};                         // of linear layers
  OnNonfinite on_nonfinite = OnNonfinite::stop;
  double gradient_factor = 1;  // on gradients while they are reduced, see Engine
  int zero_stage = 0;
  bool overlap_comm = false;
  int64_t reduce_bucket = 0, gather_bucket = 0;  // see ShardedModel::Options
  RecomputeOptions recompute = {};               // of blocks in the backward pass

  double moe_capacity_factor = 0;  // of experts; 0 = no capacity
  bool moe_drop_tokens = true;     // beyond it

  Freezing freezing = {};  // what is not trained
  OptimizerOptions optimizer;
  Schedule schedule;               // learning_rate(schedule, updates_made) is the rate of an update
  double gradient_clipping = 1.0;  // largest global norm; 0 = off

  int64_t max_steps = 0;    // updates; 0 = by epochs, call with_steps_per_epoch() once the data is known
  double num_epochs = 0;    // used while max_steps is 0
  double warmup_ratio = 0;  // of all updates; decides the warmup where max_steps is 0 and this is not
  uint64_t seed = 42;
  int64_t logging_steps = 10;
  EvalStrategy eval_strategy = EvalStrategy::no;
  int64_t eval_steps = 10;                  // updates between validations, with EvalStrategy::steps
  int64_t eval_micro_batch = 1;             // sequences per rank and forward of a validation
  int64_t save_steps = 500;                 // 0 = only at the end
  int64_t save_total_limit = 0;             // 0 = keep all checkpoints
  int64_t device_memory = 0;                // bytes that a rank may hold at once; 0 = no limit
  int64_t max_shard_bytes = 5'000'000'000;  // of a file of the exported weights
  std::string output_dir;
  bool dump_state = false;                           // print every resolved value when the run begins
  bool memory_breakdown = false;                     // bytes that are alive after each phase of a step
  bool wall_clock_breakdown = false;                 // phases and communication of every step
  bool comms_logger = false;                         // the collectives of the run, at its end
  bool comms_logger_verbose = false;                 // and each of them after its step
  std::vector<std::string> logged_collectives = {};  // their names; empty = all
  std::optional<ProfileOptions> profile = {};        // of one step of rank 0
  std::string trace_file;                            // of one step, all ranks; empty = none
  std::string tensorboard_dir, csv_dir;              // folders of monitors; empty = none

  std::vector<Resolved> resolved;
  std::vector<std::string> warnings;
};

/// What training.bf16 = "auto" stands for.
struct AutoBf16 {
  bool value = false;
  std::string reason;  // "this CPU has bf16 dot products (AVX512-BF16)"
};
/// By the instruction set of this process (kernels/isa.h), never by a clock.
AutoBf16 bf16_of_cpu();

/// Settles every value of the run. ConfigError, one line naming the places and the values, where they contradict.
RunPlan resolve(const RunConfig& config, int world_size, const AutoBf16& automatic = bf16_of_cpu());

/// The plan with max_steps, and whatever depends on it (the schedule's length and warmup), filled in from the number
/// of updates in one epoch; unchanged if max_steps was given.
RunPlan with_steps_per_epoch(RunPlan plan, int64_t steps_per_epoch);

/// ConfigError if something is missing that only training needs: a model, data, or the length of a sequence.
void require_trainable(const RunPlan& plan);

/// The table of `nought check`: key, value, reason, then the warnings.
std::string explain(const RunPlan& plan);

}  // namespace nought
