// Model: a list of Units in the order of the forward pass, and a loss. Derive from it to train a network of your own.
//
// Declare Units and parameters in the constructor. Compute the loss by running each Unit through the tape: loss() is
// all that a model needs. One that says its sections() too can be cut between them. A model does not know how its
// parameters are stored, gathered, reduced and updated.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nought/autograd/functions.h"
#include "nought/comm/mesh.h"
#include "nought/nn/batch.h"
#include "nought/nn/section.h"

namespace nought {

class Model {
 public:
  virtual ~Model() = default;

  /// The loss of a batch, summed over its targets: f64 [1]. Its backward pass forms gradients times
  /// gradient_scale.
  virtual Var loss(Tape& tape, const Batch& batch, double gradient_scale) = 0;

  /// The work on a micro-batch, in the order of the forward pass; the last section gives the loss. What is trained must
  /// have been chosen. Unless a model says more, it is one section, which calls loss().
  virtual std::vector<Section> sections();
  /// What the sections share of a micro-batch, which begins. The batch outlives it. gradient_scale is that of loss().
  virtual std::shared_ptr<MicroBatchState> begin(const Context& context, const Batch& batch, double gradient_scale);
  /// The sections, where messages part them: one chunk for each pipeline stage that this rank holds, in their order.
  /// Unless a model says more, it is one chunk with all of sections().
  virtual std::vector<Chunk> chunks();
  /// The shape of what one chunk gives to the next, of a micro-batch that begin() made the state of; Error for a model
  /// of one chunk.
  virtual Shape hidden_shape(const MicroBatchState& state) const;
  /// The order of the Units' passes in a forward or a backward pass of one of chunks(), for prefetches. Where sections
  /// name no Units, it is that of units().
  std::vector<UnitPass> passes(bool backward, const Chunk& chunk) const;
  std::vector<UnitPass> passes(bool backward) { return passes(backward, chunks().at(0)); }

  /// Passes from now on belong to the step after so many updates: for what a schedule of the model changes.
  virtual void set_updates(int64_t /*updates*/) {}
  /// After the forward and backward passes of a step: numbers on the device that the host needs, f64. They come to it
  /// together with the loss, and finish_step() gets them. Undefined: none. Asking forgets what was counted. Collective.
  virtual Tensor step_values(const Context& /*context*/) { return {}; }
  virtual void finish_step(std::span<const double> /*values*/) {}
  /// Numbers beside the parameters that training changes. Checkpoints keep them.
  virtual std::vector<double> state() const { return {}; }
  /// Sets what state() returned. Returns false, and changes nothing, if it comes from another model or other options.
  virtual bool restore(std::span<const double> state) { return state.empty(); }

  /// What of its activations went to files and came from them so far.
  virtual SwapTraffic file_traffic() const { return {}; }

  /// The ranks that train the model together: for what is no sum over tokens, and thus is added up before its gradient
  /// is formed. One rank, unless a store has joined it to others.
  const Mesh& mesh() const { return mesh_; }
  void join(const Mesh& mesh) { mesh_ = mesh; }

  const std::vector<std::unique_ptr<Unit>>& units() const { return units_; }
  /// The number of elements of all parameters, of which this rank may hold a part.
  int64_t parameter_count() const {
    int64_t count = 0;
    for (const auto& unit : units_)
      for (const Parameter& parameter : unit->parameters()) count += parameter.placement.extents().numel();
    return count;
  }
  /// Elements of the parameters that could be trained and are not.
  int64_t frozen_count() const {
    int64_t count = 0;
    for (const auto& unit : units_)
      for (const Parameter& parameter : unit->parameters())
        if (can_be_trained(parameter.role) && !parameter.trainable) count += parameter.placement.extents().numel();
    return count;
  }

 protected:
  /// Adds a Unit. Units run forward in the order in which they are added.
  Unit& add_unit(std::string name) { return *units_.emplace_back(std::make_unique<Unit>(std::move(name))); }

 private:
  std::vector<std::unique_ptr<Unit>> units_;
  Mesh mesh_;
};

}  // namespace nought
