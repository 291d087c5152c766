// LoadedUnits: the store of a model of which one Unit at a time lies in memory, as a source has it.
//
// Design goals: memory of one block, whatever the model's size. Non-goals: training, several ranks.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "nought/nn/model.h"
#include "nought/zero/state.h"

namespace nought {

class LoadedUnits final : public UnitStore {
 public:
  /// Attaches the model's Units. All outlive it. Values are f32.
  LoadedUnits(const Context& context, Model& model, const StateSource& weights);
  ~LoadedUnits() override;
  LoadedUnits(const LoadedUnits&) = delete;
  LoadedUnits& operator=(const LoadedUnits&) = delete;

  /// Loads a Unit, which stays until it is let go, whatever runs.
  void hold(const Unit& unit);
  void let_go(const Unit& unit);
  /// The values of a parameter of a Unit that is held; writing them changes what runs until the Unit is let go.
  Tensor values_of(const Unit& unit, const Parameter& parameter);
  /// Its values in the shape that it has in files.
  Tensor matrix_of(const Unit& unit, const Parameter& parameter) {
    return values_of(unit, parameter).reshape(parameter.placement.global);
  }

  void before_forward(Unit& unit) override;
  void after_forward(Unit& unit) override;
  void before_backward(Unit& unit) override;
  void after_backward(Unit& unit) override;
  Tensor values(const Unit& unit, size_t segment) override;
  DType dtype() const override { return DType::f32; }
  const Context& context() const override { return context_; }
  GradSink gradient(const Unit& unit, size_t first, size_t last) override;

 private:
  void load(const Unit& unit);
  void drop(const Unit& unit);

  Context context_;
  Model& model_;
  const StateSource& weights_;
  std::map<const Unit*, std::vector<Tensor>> loaded_;  // one tensor for each segment
  std::set<const Unit*> held_;
};

}  // namespace nought
