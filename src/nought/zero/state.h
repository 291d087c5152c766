// What is kept for each trained element, and where its values come from when a run starts.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "nought/autograd/unit.h"

namespace nought {

/// The fp32 states of one parameter: its master weights and Adam's two moments.
enum class StateKind : uint8_t { master, exp_avg, exp_avg_sq };
inline constexpr std::array kStateKinds{StateKind::master, StateKind::exp_avg, StateKind::exp_avg_sq};
constexpr std::string_view name_of(StateKind kind) {
  switch (kind) {
    case StateKind::master:
      return "master";
    case StateKind::exp_avg:
      return "exp_avg";
    case StateKind::exp_avg_sq:
      return "exp_avg_sq";
  }
  return "?";
}

/// Gives any interval of any parameter: initial values, a Hugging Face folder, a checkpoint. Layouts ask for what they
/// own, so the values never depend on the layout.
class StateSource {
 public:
  virtual ~StateSource() = default;
  /// Writes elements `interval` of the flattened parameter to `destination` ([interval.size()], any float dtype).
  virtual void fill(StateKind kind, const Parameter& parameter, Interval interval, const Tensor& destination) const = 0;
};

/// Initial values: a function of (seed, parameter name, index); moments are zero.
class InitialState final : public StateSource {
 public:
  explicit InitialState(uint64_t seed) : seed_(seed) {}
  void fill(StateKind kind, const Parameter& parameter, Interval interval, const Tensor& destination) const override;

 private:
  uint64_t seed_;
};

}  // namespace nought
