// Layout: how a run is laid out over its ranks and in time, in the options of the modules that do it. It is the part of
// a RunPlan that decides what a rank computes, holds and sends: training, measuring and planning take it as it is.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nought/autograd/fp8_options.h"
#include "nought/autograd/recompute_options.h"
#include "nought/comm/grid.h"
#include "nought/nn/freezing.h"
#include "nought/parallel/context_method.h"
#include "nought/parallel/pipeline_rules.h"
#include "nought/zero/local_steps_options.h"
#include "nought/zero/sharding_options.h"

namespace nought {

struct MatMul;
struct ModelConfig;
class StepSchedule;

/// What the ranks of a dry run would be.
enum class Wire : uint8_t {
  mpi,     // processes: the memory that the MPI backend shares between ranks of one host, and that in which it receives
           // what other hosts send, is allocated, but for GPUs, whose collectives pass memory of the host that is no
           // rank's
  threads  // threads of one process, whose collectives need no memory
};
/// A GPU that a run is planned for.
struct PlannedGpu {
  /// Bytes of workspace of its products. The library chooses them: without a GPU nobody can ask it, and where this is
  /// not given, its limit is taken.
  std::function<int64_t(const MatMul&)> product_workspace = {};
  bool staged = true;  // collectives pass pinned memory of the host (comm/staged.h)
};

/// How a run is laid out over its ranks and in time.
struct Layout {
  int ranks = 1, zero_stage = 0;
  int replicas = 1;       // copies of the sharded model; they divide the ranks that read different samples
  int host_ranks = 0;     // see GridSizes
  int secondary = 1;      // the same
  int tensor_ranks = 1;   // neighbours that share each matrix; they divide the ranks
  int context_ranks = 1;  // so many of those that are left have parts of the same sequences
  std::optional<ContextMethod> context_method = {};  // not given: the model chooses
  int expert_ranks = 1;                              // so many of those that are left hold different experts
  Pipeline pipeline = {};                            // the ranks that hold different layers; they divide the ranks, too
  bool sequence_parallel = false;
  int64_t micro_batch = 1;                                // sequences per rank and forward pass
  int64_t seq_length = 0;                                 // tokens of each; 0 = not known yet
  int64_t accumulation = 1;                               // micro-batches per update
  int64_t rollout_sequences = 0, rollout_new_tokens = 0;  // answers that a rank writes in a step; 0: none
  int64_t rollout_generations = 1;                        // so many of them have the same prompt
  int64_t rollout_rewards = 0;                            // what judges each
  bool keeps_reference = false;  // a second model, whose weights are frozen, is asked in each step
  bool asks_itself = false;      // the model says what it says of answers before it learns from them
  std::vector<std::shared_ptr<const ModelConfig>> judges = {};  // models that score answers, frozen like a reference
  std::shared_ptr<const ModelConfig> teacher = {};              // a model that the run imitates, likewise
  std::shared_ptr<const ModelConfig> value_model = {};          // a second model that is trained, for PPO
  bool has_written = false, has_known = false;  // answers have a number for each token: see BatchSequences
  int64_t row_tokens = 0;  // a micro-batch is one row of so many tokens of answers; 0: it is rows of seq_length tokens
  RecomputeOptions recompute = {};
  Fp8Options fp8 = {};
  Freezing freezing = {};                             // what is not trained
  ShardingOptions sharding = {};                      // dtypes, optimizer, overlap; its policy is that of `zero_stage`
  bool gradients_stay = false;                        // in memory, though the rest may move to files: the user says so
  std::optional<LocalStepsOptions> local_steps = {};  // replicas are workers
  std::optional<int64_t> staleness = {};              // updates come later: see RotatingServers
  Wire wire = Wire::mpi;
  int ranks_per_host = 0;              // so many neighbours share a host; 0: all of them do
  std::optional<PlannedGpu> gpu = {};  // not given: ranks compute on the CPU
  /// The steps without a pipeline follow it; not given: one micro-batch after the other.
  std::function<StepSchedule(int64_t micro_batches)> schedule = {};
  int64_t evaluation_rows = 0;      // sequences per rank and forward pass of a validation; 0 = no validation
  bool evaluation_follows = false;  // they are as many as the micro-batch, unless the user says otherwise
  bool async_save = false;          // checkpoints are written beside the training (checkpoint/checkpoint_writer.h)
  int64_t sample_prompt = 0;        // tokens of the prompt of a text sample; 0 = no samples
  int64_t sample_new_tokens = 0;    // the most tokens that it gets
  bool hashes_weights = false;      // between steps, for a receipt (checkpoint/weight_hash.h)

  int stages() const { return static_cast<int>(pipeline.ranks); }
  /// Ranks that read different samples.
  int data_ranks() const { return ranks / tensor_ranks / context_ranks / stages(); }
  /// Ranks that have different tokens.
  int token_ranks() const { return data_ranks() * context_ranks; }
  /// Ranks that share out what the stage shards, but for those that share sequences.
  int shard_ranks() const { return data_ranks() / replicas; }
  GridSizes grid() const {
    return {.replicate = replicas,
            .shard = shard_ranks(),
            .context = context_ranks,
            .tensor = tensor_ranks,
            .pipeline = stages(),
            .expert = expert_ranks,
            .expert_tensor = tensor_ranks,
            .host_ranks = host_ranks,
            .secondary = secondary};
  }
  bool on_gpu() const { return gpu.has_value(); }
  /// Whether ranks, or tiles of Units, hold parts of parameters, which files hold whole.
  bool cuts_parameters() const {
    return tensor_ranks > 1 || expert_ranks > 1 || stages() > 1 || recompute.unit_tiles > 1;
  }
  /// Whether all ranks make the passes in which any answer is written: they gather parameters for these together, or
  /// send each other what experts compute.
  bool writes_answers_together() const { return zero_stage == 3 || expert_ranks > 1; }
  /// Sequences of a step of all ranks.
  int64_t train_batch() const { return data_ranks() * micro_batch * accumulation; }
  int64_t tokens_per_step() const { return train_batch() * seq_length; }
  int read_together() const { return sharding_options().read_together(shard_ranks()); }
  /// What a ShardedModel takes: with the policy of `zero_stage`.
  ShardingOptions sharding_options() const;
  /// Returns the same run at another stage, without what that stage does not have.
  Layout at_zero_stage(int other) const;
  /// "stage 3, micro-batch 4 x 2, recompute"
  std::string str() const;
};

}  // namespace nought
