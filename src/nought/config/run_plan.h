// RunPlan: the configuration of a run after validation, with every value resolved, and the reason of each.
//
// Design goals: the code that runs a plan reads plain numbers. "auto", defaults, aliases and conflicts between RUN.json
// and a ds_config.json are resolved here, once, by the rules of transformers and DeepSpeed. Non-goals: reading the
// files of the model or of the data; allocating anything. Its members are more than 45 because each is a value of a
// run; what the modules take is in their own structs, which Layout has.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nought/base/json.h"
#include "nought/config/alignment_plan.h"
#include "nought/config/layout.h"
#include "nought/data/formats.h"
#include "nought/models/adapter_config.h"
#include "nought/optim/loss_scaler.h"
#include "nought/optim/options.h"

namespace nought {

struct RunConfig;

/// One source of a mixture of data.
struct SourcePlan {
  std::vector<std::string> files;  // globs, relative to the current directory
  double weight = 0;               // its share of training; 0 for all sources: as much as each holds
};

struct DataPlan {
  std::vector<SourcePlan> sources;
  std::vector<std::string> validation_files;         // globs
  std::optional<CorpusFormat> format = {};           // what all files hold; not given: each tells by itself
  std::string field = "text";                        // see CorpusOptions
  std::string chat_template = {};                    // a name or a file, see chat_source_for(); "": the tokenizer's
  std::string tokenizer = "bytes";                   // as make_tokenizer() takes it
  std::vector<std::string> add_special_tokens = {};  // the same
  bool parse_special_tokens = false;                 // see CorpusOptions
  double validation_fraction = 0;                    // the fraction of the tokens that is kept for validation; 0 = none
  bool separate_documents = false;                   // see DatasetOptions

  bool validates() const { return validation_fraction > 0 || !validation_files.empty(); }
};

/// When a run validates before its end. It always validates at its end.
enum class EvalStrategy : uint8_t {
  no,     // never
  steps,  // every eval_steps updates
  epoch   // after every epoch
};

/// When a run saves before its end. It always saves at its end.
enum class SaveStrategy : uint8_t {
  no,     // never
  steps,  // every save_steps updates
  epoch   // after every epoch
};

/// A number that a validation gives. The smaller, the better the model; of rewards, the greater.
enum class EvalMetric : uint8_t { loss, perplexity, bits_per_token, bits_per_byte, reward };

/// How the best checkpoint of a run is chosen: every checkpoint is validated before it is saved.
struct BestModelPlan {
  EvalMetric metric = EvalMetric::loss;
  bool greater_is_better = false;
};

/// A text that is continued during training.
struct SamplePlan {
  std::string prompt;
  int64_t steps = 100;          // updates between two samples; the last step has one, too
  int64_t max_new_tokens = 64;  // each is the likeliest one
};

/// One resolved value and its reason, as `nought check` prints them.
struct Resolved {
  std::string key;     // "learning_rate"
  std::string value;   // "0.001"
  std::string reason;  // "deepspeed: auto <- training.learning_rate"
};

/// The reason of a data.seq_length that nobody gave.
inline constexpr const char* kModelLength = "the model's number of positions";

/// Which step is profiled, and what the report shows (DeepSpeed's flops_profiler).
struct ProfileOptions {
  int64_t step = 1;
  int64_t module_depth = -1;     // 0: only the model; -1: down to the innermost modules
  int64_t top_modules = 1;       // how many kinds of modules are shown at each depth
  bool detailed = true;          // whether each module is shown too
  std::string output_file = {};  // empty: the report is printed
  double recompute_factor = 0;   // forward passes that DeepSpeed's estimate adds for recomputation
};

/// All values of a run, resolved to plain numbers.
struct RunPlan {
  std::string model_dir;                 // what ModelSource takes; empty if the model is written inline
  bool model_found = false;              // model_dir is the folder that holds the weights: nobody chooses again
  std::string model_choice;              // how model_dir was chosen among several; see FoundModel
  Json model_config;                     // the inline config.json; null if model_dir is given
  std::optional<AdapterConfig> adapter;  // given: an adapter of the model is trained, and the model is not
  std::string adapter_dir;               // the same, from this folder on, which has the config; "" = none
  std::string adapter_place;             // where it is written, for messages
  DataPlan data;
  AlignmentPlan alignment;

  Layout layout;  // how ranks and steps share it

  std::optional<LossScaleOptions> loss_scale;  // given if the model is computed in f16
  OnNonfinite on_nonfinite = OnNonfinite::stop;
  double spiky_loss_factor = 0;      // see Engine::repeat_spikes(); 0 = no step is repeated
  int64_t weight_hash_interval = 0;  // updates between comparisons of replicas (diagnose/replicas.h); 0 = none
  int64_t receipt_every = 0;         // updates between lines of receipt.jsonl (train/run_receipt.h); 0 = none
  bool log_straggler = false;        // compare the ranks' times every logging_steps (diagnose/stragglers.h)
  double gradient_factor = 1;        // see Engine

  /// Whether the run trains an adapter.
  bool adapts() const { return adapter || !adapter_dir.empty(); }
  /// Whether the model that the run begins with is the one that it trains without what its adapter adds.
  bool begins_without_adapter() const { return adapter && adapter_dir.empty() && adapter->can_be_left_out(); }

  bool resize_vocab = false;            // whether a vocabulary that is smaller than the tokenizer's grows
  double moe_capacity_factor = 0;       // see ExpertsConfig; 0 = experts have no capacity
  bool moe_drop_tokens = true;          // whether tokens beyond the capacity skip the expert
  bool moe_quantized_dispatch = false;  // see ExpertsConfig

  Schedule schedule;               // learning_rate(schedule, updates_made) is the rate of an update
  double gradient_clipping = 1.0;  // the largest global norm of the gradients; 0 = no clipping

  int64_t max_steps = 0;    // updates; 0 = by epochs: call with_steps_per_epoch() once the data is known
  double num_epochs = 0;    // used if max_steps is 0
  double warmup_ratio = 0;  // warmup as a fraction of all updates; used if max_steps is 0
  uint64_t seed = 42;
  int64_t logging_steps = 10;
  EvalStrategy eval_strategy = EvalStrategy::no;
  int64_t eval_steps = 10;                 // updates between validations, with EvalStrategy::steps
  int64_t save_steps = 500;                // updates between checkpoints; 0 = only at the end, or after epochs
  bool save_epochs = false;                // a checkpoint after each epoch
  int64_t save_total_limit = 0;            // checkpoints to keep; 0 = all
  std::string resume_from;                 // see resume_point()
  std::optional<BestModelPlan> best = {};  // given: the best checkpoint is exported at the end
  std::optional<SamplePlan> sample = {};
  int64_t collective_timeout = 1800;        // seconds that a collective may take
  bool check_calls = false;                 // see Communicator::check_calls()
  int64_t device_memory = 0;                // bytes that a rank may hold at once; 0 = no limit
  bool live_fits_memory = false;            // what stays gathered has to fit these two: see with_live_parameters()
  bool update_fits_room = false;            // updates overlap the backward pass if there is room for what that takes
  bool async_save_fits_memory = false;      // checkpoints are written beside the training if copies have room
  int64_t host_memory = 0;                  // the same in the host's RAM: see Memory::set_limit()
  int64_t max_shard_bytes = 5'000'000'000;  // the largest file of the exported weights
  std::string output_dir;
  std::string program;                               // the version that writes checkpoints: "0.1.0 (a86533e)"
  bool dump_state = false;                           // print every resolved value when the run begins
  bool memory_breakdown = false;                     // report the bytes in use after each phase of a step
  bool wall_clock_breakdown = false;                 // report the times of phases and communication of every step
  bool comms_logger = false;                         // report the collectives of the run at its end
  bool comms_logger_verbose = false;                 // report each of them after its step, too
  std::vector<std::string> logged_collectives = {};  // the names of the collectives to report; empty = all
  std::optional<ProfileOptions> profile = {};        // given: one step of rank 0 is profiled
  std::string trace_file;                            // where one step of all ranks is traced to; empty = no trace
  std::string tensorboard_dir, csv_dir;              // where DeepSpeed's monitors write; empty = nowhere
  std::string report_dir;                            // the same of TensorBoard with transformers' names

  std::vector<Resolved> resolved;
  std::vector<std::string> warnings;
  std::vector<std::string> config_files;  // that the plan was read from
};

/// What training.bf16 = "auto" stands for.
struct AutoBf16 {
  bool value = false;
  std::string reason;  // "this CPU has bf16 dot products (AVX512-BF16)"
};
/// Decides by the instruction set of this process (kernels/isa.h). It measures no time.
AutoBf16 bf16_of_cpu();

/// Resolves every value of the run. If values contradict each other, ConfigError names them and where they were
/// written.
RunPlan resolve(const RunConfig& config, int world_size, const AutoBf16& automatic = bf16_of_cpu());

/// The plan with max_steps computed from the number of updates in one epoch, and with the schedule's length and warmup,
/// which depend on it. If max_steps was given, the plan is unchanged.
RunPlan with_steps_per_epoch(RunPlan plan, int64_t steps_per_epoch);

/// Whether buckets are "auto" of a model that was not read, and the plan with their sizes.
bool has_automatic_buckets(const RunPlan& plan);
RunPlan with_automatic_buckets(RunPlan plan, int64_t hidden_size);

/// ConfigError unless the plan has what training needs: a model, data, and the length of a sequence.
void require_trainable(const RunPlan& plan);

/// The mesh as a small table: a line for each axis of several ranks. Empty if all ranks differ along the shard axis
/// alone.
std::vector<std::string> describe_mesh(const RunPlan& plan);

/// The table that `nought check` prints: keys, values and reasons, then the warnings.
std::string explain(const RunPlan& plan);

}  // namespace nought
