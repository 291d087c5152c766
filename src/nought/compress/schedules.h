// Schedules of compression: how many bits, how much of a weight and how many weights a step has.
#pragma once

#include <cstdint>

namespace nought {

/// Weights fall from start_bits to target_bits.
struct BitSchedule {
  int start_bits = 8, target_bits = 8;
  int64_t period = 1;  // steps until the first bit goes; it doubles each time

  /// The bits of the step with this number, which counts from the first that quantizes, 1.
  int bits_at(int64_t step) const;
  /// The last step up to this one that has a bit less than the one before it; 0 without one.
  int64_t last_fall(int64_t step) const;

  bool operator==(const BitSchedule&) const = default;
};

/// fp16_mixed_quantize: the share of the unquantized weight in the step with this number, from the first that
/// quantizes, 1: it falls from 1 by `change` with each, to 0.
double unquantized_share(double change, int64_t step);

/// snip_momentum's sparsity: what is pruned grows from step `begin` to step `end`, every `stride` steps.
struct SparsitySchedule {
  int64_t begin = 0, end = 0, stride = 1;
  double target = 0;

  /// Whether masks are made anew after so many steps.
  bool prunes_at(int64_t step) const;
  /// The sparsity of the masks that are made after so many steps: the dense share falls by a constant factor from one
  /// pruning to the next.
  double at(int64_t step) const;
};

}  // namespace nought
