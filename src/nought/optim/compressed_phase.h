// CompressedPhase: what ranks send for one update of the optimizers that compress (1-bit Adam, 1-bit Lamb, 0/1 Adam).
// A function of the update's number alone, so that every rank, a resumed run and a dry run agree on it.
#pragma once

#include <cstdint>

#include "nought/optim/options.h"

namespace nought {

enum class CompressedPhase : uint8_t {
  plain,     // gradients are summed over the ranks, as for any other optimizer
  momentum,  // each rank's own momentum, in one bit (1-bit Adam and 1-bit Lamb, once the second moments are frozen)
  gradient,  // each rank's own gradient, in one bit (0/1 Adam, between two updates of the second moments)
  local,     // nothing: each rank updates for itself (0/1 Adam, once the second moments are frozen)
  synchronization  // what each rank has moved since the last synchronization, in one bit, after a local update
};

/// The phase of the update-th update, from 1 on. plain for methods that do not compress.
CompressedPhase phase_of(const Method& method, int64_t update);
/// The first update that is not plain, of a method that compresses; Error for others.
int64_t first_compressed(const Method& method);
/// True if ranks update for themselves in some phase: their weights differ until they synchronize.
bool updates_locally(const Method& method);
/// The decay of the first moment of such a method, and what is added to the root of the second; Error for others.
struct MomentRule {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
};
MomentRule moment_rule(const Method& method);

}  // namespace nought
