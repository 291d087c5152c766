// ShardedModel: a Model's parameters, gradients and optimizer states over the data-parallel ranks, at any ZeRO stage.
//
// It is the UnitStore of the model's Units: the tape's four events become leases, prefetches, releases and reductions
// here. The rest of training sees load, begin_micro_batch, reduce, update.
#pragma once

#include <memory>
#include <optional>

#include "nought/nn/model.h"
#include "nought/zero/sharded_optimizer.h"

namespace nought {

class ShardedModel final : public UnitStore {
 public:
  struct Options {
    Policy policy = {};
    DType dtype = DType::f32;           // of parameters and activations
    DType gradient_dtype = DType::f32;  // of accumulation: f32, or that of the parameters
    bool overlap = true;                // of communication with computation: changes time, never bits
    bool training = true;               // false: parameters only
    OptimizerOptions optimizer = {};
    std::optional<DType> wire_dtype = {};  // of gradients on their way between ranks; not given: gradient_dtype
    // Elements that one collective takes at most, together with the padding; 0: every Unit travels alone.
    int64_t reduce_bucket = 0;  // of gradients
    int64_t gather_bucket = 0;  // of updated parameters, at stages 1 and 2
  };
  /// Joins the model to the ranks of the mesh, for as long as this lives. A Communicator is a mesh of one axis.
  ShardedModel(const Context& context, const Mesh& mesh, Model& model, const Options& options);
  ~ShardedModel() override;

  /// Fills all states from `source`, as after `updates` updates. Every rank reads only what it keeps.
  void load(const StateSource& source, int64_t updates = 0);

  /// Before each forward of a step; `last` at the accumulation boundary.
  void begin_micro_batch(bool last);
  /// After the last backward: waits for the reductions. By Unit, the sum of squares of the gradients that this rank
  /// owns. Their sum over Group::norm, then over the Units in order, is the square of the global norm, and has the same
  /// bits however the Units are spread over pipeline stages.
  std::vector<double> finish_gradients();
  /// One optimizer update, and the exchange of the parameters; gradients start anew.
  void update(double lr, double gradient_scale);
  /// Forgets the gradients without an update.
  void discard_gradients();

  /// The summed gradients of a Unit ([numel]), gathered on every rank; between finish_gradients() and update().
  Tensor gather_gradients(size_t unit);
  /// Calls f with the whole parameters of a Unit ([numel], in the parameters' dtype). All ranks call it together.
  template <class F>
  void with_parameters(size_t unit, F&& f) {
    residency_.lease(unit);
    f(residency_.whole(unit).flat(0, residency_.partition(unit).size()));
    residency_.release(unit);
  }

  Model& model() const { return model_; }
  const Mesh& mesh() const { return mesh_; }
  const Context& context() const { return context_; }
  const Options& options() const { return options_; }
  ShardedOptimizer& optimizer() { return *optimizer_; }
  const Residency& residency() const { return residency_; }
  /// How many collectives take the gradients of all Units.
  size_t reduce_buckets() const { return reducer_ ? reducer_->buckets() : 0; }
  /// Waits for everything in flight.
  void settle();
  /// What is being computed: "block.3.attention, backward".
  std::string at_work() const;

  void before_forward(Unit& unit) override;
  void after_forward(Unit& unit) override;
  void before_backward(Unit& unit) override;
  void after_backward(Unit& unit) override;
  void enter_part(const char* name) override;
  void leave_part() override;
  Tensor values(const Unit& unit) override { return residency_.whole(unit.index()); }
  GradSink gradient(const Unit& unit, size_t first, size_t last) override;

 private:
  void lease(const Unit& unit);
  void release(const Unit& unit);
  void begin_pass(const Unit& unit, bool walking_back);
  /// Puts the pass of the Unit at work on the timeline.
  void note_pass() const;

  Context context_;
  Mesh mesh_;
  Communicator& ranks_;  // that share out the parameters
  Model& model_;
  Options options_;
  Residency residency_;
  std::optional<Reducer> reducer_;
  std::optional<ShardedOptimizer> optimizer_;
  const Unit* unit_at_work_ = nullptr;
  bool walking_back_ = false;
  Span::Clock::time_point pass_begin_ = {};
  struct Part {
    const char* name;
    Span::Clock::time_point begin;
  };
  std::vector<Part> parts_;  // of the Unit at work, the innermost last
};

}  // namespace nought
