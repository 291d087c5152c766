// TrainingCase: a short training run of a small model, as a test writes it down, on thread ranks; and what it gave.
//
// Design goals: a test says what differs from the default and compares results. Whatever the layout, a step reads the
// same rows. Non-goals: runs by a plan, with data, checkpoints by time and observers (support/trainer_runs.h).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "support/mesh_layouts.h"
#include "support/small_models.h"
#include "support/whole_tensors.h"

#include "nought/engine/engine.h"
#include "nought/kernels/kernels.h"
#include "nought/kernels/watch.h"
#include "nought/models/decoder.h"
#include "nought/nn/freezing.h"

namespace nought::test {

/// What the rows of a run are like. Row r of a step has the same tokens on whatever rank and in whichever micro-batch
/// it lies.
struct Rows {
  int64_t of_step = 32;  // over all ranks and micro-batches
  int64_t length = 7;
  bool documents = false;  // rows are packed with several, which begin elsewhere in each row
  /// Noisy sequences of which all tokens count. Without: tokens at random, rows with different numbers of targets, and
  /// one without any but in the first micro-batch.
  bool learnable = false;
};

struct TrainingRank;

struct TrainingResult {
  std::string of;                           // the case, for messages
  std::vector<double> losses, norms;        // the norm of a step that was skipped is 0
  std::vector<double> scales;               // of the loss, negative where a step was skipped
  std::vector<double> validations;          // of the rows of each step, if the case evaluates
  WholeTensors weights;                     // at the end
  std::vector<std::vector<double>> chosen;  // in the last step, by layer and expert

  /// The mean loss of the last `count` steps.
  double last_loss(size_t count) const;
  int64_t skipped() const;
};

/// Every gradient norm of runs with the default rows is above it.
inline constexpr double kActiveClipping = 0.2;

struct TrainingCase {
  ModelConfig model = small_model("qk_norms");
  MeshLayout mesh = {};
  /// Its policy is that of mesh.stage. Adam divides by the root of a square: with its usual epsilon, rounding decides
  /// what a gradient near 0 does.
  ShardedModel::Options settings = {.optimizer = {.method = AdamOptions{.eps = 1e-4}, .weight_decay = 0.1}};
  Interval steps = {0, 6};
  Rows rows = {};
  int64_t accumulation = 4;  // micro-batches of a step
  double lr = 2e-3;
  double clipping = kActiveClipping;  // with this one it is expected of every step to be clipped
  RecomputeOptions recompute = {};
  Fp8Options fp8 = {};
  Freezing freezing = {};
  LossScaler scaler = {};
  double gradient_factor = 1;
  OnNonfinite on_nonfinite = OnNonfinite::stop;
  std::string schedule = "";             // as support/schedules.h has it; "": that of the mesh
  bool evaluates = false;                // after each step
  std::string resumed = "", saved = "";  // folders: of the checkpoint to start from, and to leave one in; "" for none
  bool guarded = false;                  // on the guarded device
  bool timed = false;                    // the operations of each rank go on its timeline
  Watcher watcher = {};                  // of what the kernels of one rank compute, but not of what transports add
  int watched = 0;                       // that rank
  std::vector<Context> contexts = {};    // of each rank; none: the CPU, or the guarded device
  std::function<void(Decoder&)> prepare = {};              // chooses what is trained, before there are any values
  std::function<void(ShardedModel&, Decoder&)> load = {};  // not given: InitialState(3)

  /// The dtype of parameters, and of the gradients too.
  TrainingCase in(DType dtype) const;
  std::string str() const;

  TrainingResult run() const;
  /// Runs it on the ranks of `world`, of which the first one gets the result.
  TrainingResult run_in(Communicator& world, const Context& context) const;
  /// Calls body(rank) on every rank, before any step.
  void on_ranks(const std::function<void(TrainingRank&)>& body) const;
  /// What value(rank) is on this rank; it is called on every one. -1: on the last.
  template <class Value>
  auto on_rank(int index, const Value& value) const;
  /// The sum of a step's gradients, of what is trained.
  WholeTensors gradients(int64_t step = 0) const;
  /// TrainingRank::cached_logits() of the last rank.
  std::vector<float> cached_logits() const;
};

/// One rank of a case.
struct TrainingRank {
  TrainingRank(Communicator& world, const Context& context, const TrainingCase& of);

  bool is_first() const { return world.rank() == 0; }
  /// The micro-batches of a step that this rank reads, and what the targets of all ranks weigh.
  std::vector<Batch> batches(int64_t step) const;
  double targets(int64_t step) const;
  StepResult step(int64_t step);
  double evaluate(int64_t step);
  /// Collective, as all below.
  WholeTensors weights();
  /// The gradients of a step, summed. They are discarded.
  WholeTensors gradients(int64_t step = 0);
  /// The last logits of a prompt of five tokens, and of a token behind it.
  std::vector<float> cached_logits();

  TrainingCase of;
  Communicator& world;
  std::shared_ptr<Timeline> timeline;  // of a case that is timed
  Context context;
  Mesh mesh;
  Decoder decoder;
  ShardedModel model;
  Engine engine;
};

template <class Value>
auto TrainingCase::on_rank(int index, const Value& value) const {
  std::optional<std::invoke_result_t<Value, TrainingRank&>> result;
  on_ranks([&](TrainingRank& rank) {
    auto mine = value(rank);
    if (rank.world.rank() == (index < 0 ? rank.world.size() + index : index)) result = std::move(mine);
  });
  return *std::move(result);
}

/// One rank of its own.
struct AloneRank {
  explicit AloneRank(const TrainingCase& of);

  std::unique_ptr<Communicator> self;
  TrainingRank rank;
};

/// Steps of a few rows that can be learned, each in one micro-batch.
TrainingCase learning(const ModelConfig& model, const MeshLayout& mesh = {});

/// A micro-batch of a step as one of the ranks that read samples has it.
Batch rows_of(Memory& memory, const ModelConfig& model, const Rows& rows, int64_t step, int64_t micro_batch,
              int64_t micro_batches, int rank, int ranks);

/// All of two results, to the bit. `result` began `first` steps after `expected`.
void expect_same_bits(const TrainingResult& result, const TrainingResult& expected, size_t first = 0);
/// Losses, norms (relatively) and weights. `result` began `first` steps after `expected`.
void expect_close(const TrainingResult& result, const TrainingResult& expected, size_t first = 0,
                  double tolerance = 1e-5);
void expect_losses_within(const TrainingResult& result, const TrainingResult& expected, double tolerance,
                          size_t first = 0);
/// Each element by its absolute difference.
void expect_close(const WholeTensors& values, const WholeTensors& expected, double tolerance);
void expect_same_bits(const WholeTensors& values, const WholeTensors& expected);
double largest_difference(const WholeTensors& values, const WholeTensors& expected);

/// What the case gives at ZeRO stage 0, after the other stages have given the same bits. At each stage something else
/// is done elsewhere in time, overlap and recomputation, which is no part of the result either.
TrainingResult same_at_every_stage(TrainingCase each);
/// On each of the meshes, what one rank gives.
void expect_close_on(const std::vector<MeshLayout>& meshes, TrainingCase each, const TrainingResult& alone);

/// On each of the meshes, the case that `on` makes for it gives what one rank gives that keeps all activations.
void expect_like_one_rank(const std::vector<MeshLayout>& meshes,
                          const std::function<TrainingCase(const MeshLayout&)>& on);

/// A case that trains [0, cut), saves, and is resumed by `rest` for the steps behind. What `rest` gave.
TrainingResult resumed_at(int64_t cut, TrainingCase first, TrainingCase rest);

}  // namespace nought::test
