// LossScaler: the factor that keeps fp16 gradients above the smallest number, by DeepSpeed's rules.
//
// The loss is multiplied by the scale, so gradients are; the update divides it out. When a gradient overflows the
// update is skipped and a dynamic scale is halved; after `scale_window` updates without an overflow it is doubled
// (arXiv 1710.03740).
#pragma once

#include <cstdint>

namespace nought {

/// fp16's keys of ds_config.json.
struct LossScaleOptions {
  double static_scale = 0;  // 0: dynamic
  int initial_power = 16;   // the first dynamic scale is 2 to this power
  int64_t scale_window = 1000;
  int64_t hysteresis = 2;               // overflows until the scale is halved
  bool consecutive_hysteresis = false;  // only overflows in a row count
  double min_scale = 1;

  bool operator==(const LossScaleOptions&) const = default;
};

/// What to do when a loss or a gradient is not finite and no loss scale is there to blame.
enum class OnNonfinite : uint8_t { stop, skip };

class LossScaler {
 public:
  /// What has to be kept for a run to go on as if it had never stopped.
  struct State {
    double scale = 1;
    int64_t steps = 0, last_overflow = -1, hysteresis = 1;

    bool operator==(const State&) const = default;
  };

  /// A scale of 1 that never changes: no scaling.
  LossScaler() = default;
  explicit LossScaler(const LossScaleOptions& options);

  double scale() const { return state_.scale; }
  bool dynamic() const { return dynamic_; }
  /// True if gradients are scaled, so that a step which overflows is skipped rather than an error.
  bool scales() const { return scales_; }
  /// After each step. Error if an overflow finds the scale at its minimum already.
  void update(bool overflow);

  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

 private:
  void halve();

  LossScaleOptions options_;
  bool scales_ = false, dynamic_ = false;
  State state_;
};

}  // namespace nought
