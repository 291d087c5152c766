// ShardedModel: a Model's parameters, gradients and optimizer states over the data-parallel ranks, at any ZeRO stage.
//
// It is the UnitStore of the model's Units: the tape's four events become leases, prefetches and releases here. What is
// of one micro-batch, such as its gradients until they are reduced, is in a MicroBatch. The rest of training sees load,
// finish_gradients, update.
//
// It has more than 45 members because it joins the parts: nearly every function is one call of its Residency, Reducer,
// ShardedOptimizer or PowerSgd, with the exchange that has to follow, and nobody else may call these in another order.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "nought/nn/model.h"
#include "nought/zero/live_units.h"
#include "nought/zero/pass_log.h"
#include "nought/zero/pass_order.h"
#include "nought/zero/power_sgd.h"
#include "nought/zero/rank_local_tensor.h"
#include "nought/zero/sharded_optimizer.h"
#include "nought/zero/sharding_options.h"
#include "nought/zero/sparse_masks.h"
#include "nought/zero/whole_tensor.h"
#include "nought/zero/working_weights.h"

namespace nought {

class ShardedModel final : public UnitStore {
 public:
  using Options = ShardingOptions;
  /// What is trained is chosen before (nn/freezing.h). Joins the model to the ranks of the mesh, for as long as this
  /// lives. A Communicator is a mesh of one axis.
  ShardedModel(const Context& context, const Mesh& mesh, Model& model, const Options& options);
  ~ShardedModel() override;

  /// Fills all states from `source`, as after `updates` updates. Every rank reads only what it keeps.
  void load(const StateSource& source, int64_t updates = 0);

  /// The order in which passes of Units come from now on, for prefetches; a pass that comes out of this order is the
  /// next of its kind in it, from the beginning if need be. Units may stay whole between these passes. Empty: the
  /// passes of one micro-batch, which is the order unless this is called, and nothing stays.
  void expect(std::vector<UnitPass> order);
  /// After the last backward: waits for the reductions. By Unit, the sum of squares of the gradients that this rank
  /// owns, f64 [units]. Their sum over Group::norm, then over the Units in order, is the square of the global norm, and
  /// has the same bits however the Units are spread over pipeline stages.
  Tensor finish_gradients();
  /// One optimizer update, and the exchange of the parameters; gradients start anew. If updates are put off, it is the
  /// pending one, and this one is pending then.
  void update(double lr, double gradient_scale);
  /// This step's update comes with these numbers, whatever its gradients are: it may be made overlapped with the
  /// backward pass. Where it can be undone (undoes_early_updates()) this is a guess.
  void begin_early_update(const EarlyUpdate& update);
  /// The update does not come, or not yet. True if parameters may have changed already, and stay so.
  bool abandon_early_update();
  /// True if updates may be begun early, and undone to the bit.
  bool undoes_early_updates() const { return options_.offload_optimizer.early && options_.offload_optimizer.undo; }
  /// Begins the pending update beside what comes next: the passes of a step. Nothing without one.
  void start_pending_update();
  /// Applies the pending update; nothing without one. All ranks call it together.
  void finish_pending_update();
  /// After load(): the update that was pending when `source` was saved. It is applied at once if none is put off here.
  void load_pending_update(const StateSource& source, const PendingUpdate& pending);
  /// Calls change(optimizer), which changes masters between two steps, and exchanges the parameters. All ranks call it
  /// together.
  void change_masters(const std::function<void(ShardedOptimizer&)>& change);
  /// With local_gradients: the whole gradients of a segment that this rank has formed; after the last backward pass.
  Tensor local_gradients(SegmentIndex at);
  /// Whole parameters of a segment that others have updated.
  void take_parameters(SegmentIndex at, const Tensor& whole);
  /// Forgets the gradients without an update.
  void discard_gradients();

  /// The summed gradient of each parameter of a Unit, the global tensor on every rank, or all of a tile; undefined
  /// where it is not trained. Between finish_gradients() and update(). All ranks call it together.
  std::vector<Tensor> gather_gradients(size_t unit);
  /// Calls f(const Parameter&, Tensor) with each global tensor of a Unit and its tiles in turn, and a parameter of its
  /// name; codes are decoded. Of a tile nothing: what it has comes with its Unit. All ranks call it together.
  template <class F>
  void with_parameters(size_t unit, F&& f) {
    if (model_.units()[unit]->tile_of() != nullptr) return;
    residency_.lease_exact(unit);
    for (const GlobalTensor& tensor : global_tensors(*model_.units()[unit])) {
      const auto whole_part = [&](const GlobalTensor::Part& part) {
        return whole_tensor(context_, mesh_, *part, held_parameter(*part.unit, *part));
      };
      const auto tile = [&](const GlobalTensor::Part& part) {
        residency_.lease_exact(part.unit->index());
        Tensor whole = whole_part(part);
        residency_.release(part.unit->index());
        return whole;
      };
      f(tensor.first(), tensor.is_tiled() ? without_tiles(context_, tensor, tile) : whole_part(tensor.parts.front()));
    }
    residency_.release(unit);
  }
  /// Calls f with the summed gradients: between finish_gradients() and update(). f gets an undefined tensor for what is
  /// not trained.
  void with_gradients(size_t unit, const std::function<void(const Parameter&, const Tensor&)>& f);

  /// Calls f with what this rank holds of each parameter, [elements].
  template <class F>
  void with_parts(size_t unit, F&& f) {
    residency_.lease_exact(unit);
    for (const Parameter& parameter : model_.units()[unit]->parameters())
      f(parameter, held_parameter(*model_.units()[unit], parameter));
    residency_.release(unit);
  }

  Model& model() const { return model_; }
  const Mesh& mesh() const { return mesh_; }
  const Context& context() const override { return context_; }
  const Options& options() const { return options_; }
  ShardedOptimizer& optimizer();
  const Residency& residency() const { return residency_; }
  const LiveUnits& live_units() const { return live_; }
  /// What this rank has for itself, as it is now: a checkpoint keeps it.
  std::vector<RankLocalTensor> rank_states() const;
  /// Adds to it: `list` is asked whenever a checkpoint is saved or loaded.
  void keep_for_rank(ListRankLocalTensors list) { rank_states_.push_back(std::move(list)); }
  /// What moved between the pools of this rank so far, with what the model keeps of activations in files.
  StateTraffic traffic() const;
  /// How long it was on its way from and to files so far, and waited for.
  StateTimes times() const;
  /// How many segments are trained, and how many collectives take all their gradients.
  size_t trained_segments() const { return reducer_ ? reducer_->segments() : 0; }
  size_t reduce_buckets() const { return reducer_ ? reducer_->buckets() : 0; }
  /// Waits for everything in flight.
  void settle();
  /// What is being computed: "block.3.attention, backward".
  std::string at_work() const { return passes_.str(); }

  void before_forward(Unit& unit) override;
  void after_forward(Unit& unit) override;
  void before_backward(Unit& unit) override;
  void after_backward(Unit& unit) override;
  void enter_part(const char* name) override { passes_.enter_part(name); }
  void leave_part() override { passes_.leave_part(); }
  /// What passes compute with: of rounded weights these values, and of all else those that are stored.
  Tensor values(const Unit& unit, size_t segment) override;
  DType dtype() const override { return options_.dtype; }
  /// Nobody wants a gradient without training; with it, gradients belong to a MicroBatch: Error.
  GradSink gradient(const Unit& unit, size_t first, size_t last) override;

 private:
  friend class MicroBatch;
  void lease(const Unit& unit);
  void lease_one(size_t unit);
  /// After its pass.
  void release(const Unit& unit);
  /// Starts the gather of the Unit whose pass is expected after this one, and fetches what comes later from its offload
  /// tier.
  void prefetch_behind(UnitPass pass);
  void require_training(std::string_view call) const;
  /// Whether the next step's gradients are reduced as they come, or stay each rank's own for what adds them up later.
  void choose_reduction();
  /// What passes compute with in place of the stored weights.
  void change_weights();
  /// What two pipeline stages hold has a gradient on both: each gets the sum.
  void add_gradients_of_copies();
  /// Fills what no optimizer fills: frozen segments; all of them without training.
  void load_kept(const StateSource& source);
  void load_kept_four_bits(SegmentIndex at, const StateSource& source);
  /// What this rank holds of a parameter of a leased Unit; codes are decoded.
  Tensor held_parameter(const Unit& unit, const Parameter& parameter) const;

  Context context_;
  Mesh mesh_;
  Model& model_;
  Options options_;
  Residency residency_;
  std::optional<Reducer> reducer_;
  std::optional<ShardedOptimizer> optimizer_;
  std::optional<PowerSgd> power_sgd_;
  std::optional<SparseMasks> masks_;
  std::optional<WorkingWeights> working_;
  std::vector<ListRankLocalTensors> rank_states_;
  PassOrder order_;
  LiveUnits live_;
  PassLog passes_;
};

}  // namespace nought
