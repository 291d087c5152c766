// Model: Units in the order of the forward pass, and a loss. What a user writes to train a network of their own.
//
// Declare Units and parameters in the constructor; compute in loss() by running each Unit through the tape. The store
// of the parameters, their gathering, reduction and update are none of the model's business.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nought/autograd/functions.h"
#include "nought/comm/mesh.h"
#include "nought/nn/batch.h"

namespace nought {

class Model {
 public:
  virtual ~Model() = default;

  /// The summed loss of a batch, f64 [1]; its backward forms gradients times gradient_scale.
  virtual Var loss(Tape& tape, const Batch& batch, double gradient_scale) = 0;

  /// The step's forward and backward passes are done, on every rank. Collective.
  virtual void finish_step(const Context& /*context*/) {}
  /// What changes with training beside the parameters, as numbers for checkpoints.
  virtual std::vector<double> state() const { return {}; }
  /// False if the state is that of another model or other options; then nothing is changed.
  virtual bool restore(std::span<const double> state) { return state.empty(); }

  /// The ranks that train the model together: for what is no sum over tokens, and thus is added up before its gradient
  /// is formed. One rank, unless a store has joined it to others.
  const Mesh& mesh() const { return mesh_; }
  void join(const Mesh& mesh) { mesh_ = mesh; }

  const std::vector<std::unique_ptr<Unit>>& units() const { return units_; }
  int64_t parameter_count() const {
    int64_t count = 0;
    for (const auto& unit : units_) count += unit->numel();
    return count;
  }
  /// Elements of the parameters that could be trained and are not.
  int64_t frozen_count() const {
    int64_t count = 0;
    for (const auto& unit : units_)
      for (const Parameter& parameter : unit->parameters())
        if (can_be_trained(parameter.role) && !parameter.trainable) count += parameter.shape.numel();
    return count;
  }

 protected:
  /// Units run forward in the order in which they are made.
  Unit& add_unit(std::string name) { return *units_.emplace_back(std::make_unique<Unit>(std::move(name))); }

 private:
  std::vector<std::unique_ptr<Unit>> units_;
  Mesh mesh_;
};

}  // namespace nought
