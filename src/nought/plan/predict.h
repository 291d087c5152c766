// predict(): how much memory, traffic and work a training run will need, before any of it is allocated.
//
// Design goals: the prediction is a dry run, and not a second model of memory. Model::loss, the tape, the
// ShardedModel and the Engine run as in training, on kernels that compute nothing, on memory that is only counted, and
// with ranks that do not exist. So a change to training changes its prediction too. What routers choose is not known:
// every expert is taken to get as many rows as any other, of this rank's tokens and of those of every other rank that
// exchanges rows with it; beside that stands the most that can be, if one rank's experts get every row.
// Non-goals: time, which is step_time()'s; the memory of libraries.
#pragma once

#include <string>
#include <vector>

#include "nought/config/run_plan.h"
#include "nought/engine/step_schedule.h"
#include "nought/models/config.h"
#include "nought/plan/compressed_steps.h"
#include "nought/plan/dry_run.h"
#include "nought/plan/dry_run_device.h"
#include "nought/train/observer.h"
#include "nought/zero/sharded_model.h"

namespace nought {

/// The layout of a plan's run. ConfigError if it has text samples and its tokenizer can not be read.
Layout layout_of(const RunPlan& plan);

/// What one rank will need. All ranks need the same, unless the vocabulary does not divide: then the first ones, of
/// which this is one, need the most; but for pipeline stages, of which it is the one with the highest peak; and where
/// ranks that share out states differ (they_differ()), whose memory is the most of any.
struct Prediction {
  Layout layout;
  std::array<int64_t, kNumCategories> steady{};                      // bytes between two steps, by Category
  std::array<int64_t, kNumCategories> steady_host{}, steady_file{};  // the same of the other pools
  RankMemory memory;                                                 // the peaks
  std::optional<RankMemory> at_most = {};      // where ranks hold different experts: if those of one rank get every row
  Traffic traffic;                             // what it sends in one step; validations are not counted
  std::optional<Traffic> traffic_before = {};  // in its first steps, if later ones send compressed values
  std::vector<Mesh::GroupTraffic> traffic_by_axes;  // the same by the axes along which the receivers differ
  Traffic at_synchronizations;                      // what workers of local steps send besides, in sync_every steps
  StateTraffic states;                              // what one step moves between pools
  StateTraffic by_update;                           // what of that its update moves
  StateTraffic of_gradients;                        // and what passes move of gradients
  StateTraffic of_inputs;                           // and of the saved inputs of recomputed Units, to files
  int64_t parameters = 0, frozen = 0;               // elements of the whole model, and those of them that are frozen
  double frozen_flops_per_token = 0;                // see models/flops.h, of this place
  std::vector<int64_t> in_flight = {};              // by chunk: see StepSchedule::in_flight()
  double executed_flops = 0;                        // what this rank computes in one step, recomputation included
  double attention_flops = 0;                       // what of that is attention's
  double product_bytes = 0;                         // operands of products and attention
  double host_bytes = 0;                            // what its operations on the host move beside a GPU
  double other_bytes = 0;   // what its other operations read and write meanwhile, but for the optimizer's
  double update_bytes = 0;  // and those
  double operations = 0;    // how many it runs
  int place = 0;            // of this rank on the pipeline axis
  std::vector<int64_t> gathered_units = {};  // see LiveUnits::sizes()

  int64_t steady_total() const;
  /// What a budget has to hold.
  const RankMemory& most() const { return at_most ? *at_most : memory; }
};
Prediction predict(const ModelConfig& config, const Layout& layout);
struct DryRunPlace;
/// The prediction for one rank (plan/dry_run_rank.h), without Prediction::at_most.
Prediction dry_run(const ModelConfig& config, const Layout& layout, const DryRunPlace& at);
/// What a rank has moved between its pools so far: all that was copied between device and host, and went to files.
StateTraffic moved_by(ShardedModel& model);
/// The prediction for the first of the ranks with this place in the pipeline.
Prediction predict_at(const ModelConfig& config, const Layout& layout, int place);
/// Whether the ranks that share out states need different memory: tiles of states in files are made of whole pieces of
/// parameters for Lamb, and these differ by rank.
bool they_differ(const Layout& layout);
/// The predictions for the first rank of each pipeline stage.
std::vector<Prediction> predict_places(const ModelConfig& config, const Layout& layout);
/// The one whose peak is the highest.
const Prediction& most_demanding(const std::vector<Prediction>& places);
/// The peaks of these places' ranks, as memory_table() takes them: of each place; or of each rank, where they_differ().
std::vector<RankMemory> memory_of_ranks(const ModelConfig& config, const std::vector<Prediction>& places);

/// The run with no, selective and full recompute.
std::vector<Prediction> predict_recompute(const ModelConfig& config, const Layout& layout);

}  // namespace nought
