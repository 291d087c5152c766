// StateSource: where the values of parameters, and of their optimizer states, come from when a run starts.
#pragma once

#include <cstdint>

#include "nought/optim/optimizer.h"

namespace nought {

/// Gives any interval of any parameter: initial values, a Hugging Face folder, a checkpoint. Layouts ask for what they
/// own, so the values never depend on the layout.
class StateSource {
 public:
  virtual ~StateSource() = default;
  /// Writes elements `interval` of the flattened parameter to `destination` ([interval.size()], any float dtype), where
  /// host code may write.
  virtual void fill(StateKind kind, const Parameter& parameter, Interval interval, const Tensor& destination) const = 0;
};

/// source.fill() for a destination on any device.
void fill(const Context& context, const StateSource& source, StateKind kind, const Parameter& parameter,
          Interval interval, const Tensor& destination);

/// Initial values: a function of (seed, parameter name, index); all states but the master are zero.
class InitialState final : public StateSource {
 public:
  explicit InitialState(uint64_t seed) : seed_(seed) {}
  void fill(StateKind kind, const Parameter& parameter, Interval interval, const Tensor& destination) const override;

 private:
  uint64_t seed_;
};

}  // namespace nought
