// Closed formulas of the literature. Tests compare the rehearsal's numbers with them.
#pragma once

#include "nought/zero/policy.h"

namespace nought {

/// Bytes per parameter in mixed-precision training. optimizer is the K of arXiv 1910.02054: 12 for fp32 master,
/// momentum and variance; 8 without the master, which gives 12 bytes in all.
struct StateBytes {
  double parameter = 2, gradient = 2, optimizer = 12;
};

/// Bytes of parameters, gradients and optimizer states per rank, for N ranks and Psi parameters. With the default
/// StateBytes: 16 Psi, 4 Psi + 12 Psi/N, 2 Psi + 14 Psi/N and 16 Psi/N at ZeRO stages 0 to 3 (arXiv 1910.02054, section
/// 5).
constexpr double model_state_bytes(double parameters, int ranks, Policy policy, StateBytes bytes = {}) {
  const auto share = [&](double each, bool sharded) { return parameters * each / (sharded ? ranks : 1); };
  return share(bytes.parameter, policy.shard_parameters) + share(bytes.gradient, policy.shard_gradients) +
         share(bytes.optimizer, policy.shard_optimizer);
}

}  // namespace nought
