// The closed formulas of the literature, to hold the rehearsal's numbers against.
#pragma once

#include "nought/zero/policy.h"

namespace nought {

/// Bytes per parameter of mixed-precision training; K = 12 of arXiv 1910.02054: fp32 master, momentum and variance.
/// Without an fp32 master (K = 8) the whole is the "12 bytes" convention.
struct StateBytes {
  double parameter = 2, gradient = 2, optimizer = 12;
};

/// Bytes of parameters, gradients and optimizer states per rank: 16 Psi, 4 Psi + 12 Psi/N, 2 Psi + 14 Psi/N and
/// 16 Psi/N for stages 0 to 3 with the default bytes (arXiv 1910.02054, section 5).
constexpr double model_state_bytes(double parameters, int ranks, Policy policy, StateBytes bytes = {}) {
  const auto share = [&](double each, bool sharded) { return parameters * each / (sharded ? ranks : 1); };
  return share(bytes.parameter, policy.shard_parameters) + share(bytes.gradient, policy.shard_gradients) +
         share(bytes.optimizer, policy.shard_optimizer);
}

}  // namespace nought
