// Closed formulas of the literature, which tests compare the dry run's numbers with.
#pragma once

#include <cstdint>

#include "nought/zero/policy.h"

namespace nought::test {

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

/// Elements that a rank sends along one axis for one micro-batch, by collective.
struct AxisTraffic {
  int64_t all_reduce = 0, all_gather = 0, reduce_scatter = 0, all_to_all_v = 0;
};

/// Replicas of a model that is sharded at stage 3.
struct ShardedReplicas {
  int shards = 1, replicas = 1;
  int64_t parameters = 1;  // padding included
  int64_t micro_batches = 1;
};

/// Inside a replica: each micro-batch gathers all parameters forward and backward, and scatters their gradients; to the
/// other ranks goes a rank's shard of each: 3 (p-1)/p Psi elements for p shards (arXiv 2205.00119, section 3).
constexpr AxisTraffic inside_replica_traffic(const ShardedReplicas& of) {
  const int64_t sent = of.micro_batches * (of.shards - 1) * (of.parameters / of.shards);
  return {.all_gather = 2 * sent, .reduce_scatter = sent};
}

/// Between k replicas: each rank's shard of the gradients, once in a step: 2 Psi/p (k-1)/k elements.
constexpr AxisTraffic between_replicas_traffic(const ShardedReplicas& of) {
  return {.all_reduce = 2 * (of.parameters / of.shards) / of.replicas * (of.replicas - 1)};
}

/// What ranks that share the matrices of a dense decoder work on.
struct SharedLayers {
  int ranks = 1;
  int64_t tokens = 1, hidden = 1, layers = 1;
  bool slices = false;      // sequence parallelism
  bool recomputes = false;  // whole blocks are computed again
};

/// Along the tensor axis, if `ranks` divides tokens * hidden and no key/value head is shared. [tokens, hidden] is
/// summed twice forward and twice backward by each layer, twice more if it is computed again, and once each by the
/// lookup and by the head's input (arXiv 1909.08053, section 3): over N ranks a sum of n elements sends 2 n (N-1)/N.
/// With slices each sum is a reduce-scatter and an all-gather, which together send as much, and the input of both
/// column products is gathered once more for the gradients of their weights (arXiv 2205.05198, section 4.2.2). Slices
/// have equally many rows. The loss takes a sum of one element, and one number per token of every rank.
constexpr AxisTraffic shared_layers_traffic(const SharedLayers& of) {
  const int64_t others = of.ranks - 1, slice = (of.tokens + of.ranks - 1) / of.ranks * of.hidden;
  const int64_t sums = (of.recomputes ? 6 : 4) * of.layers + 2, log_sums = of.tokens * others;
  // The owner of the one element of the loss sends its sum to the others; it is the first rank.
  const int64_t loss = others;
  if (of.slices)
    return {.all_reduce = loss,
            .all_gather = (sums + 2 * of.layers) * slice * others + log_sums,
            .reduce_scatter = sums * slice * others};
  return {.all_reduce = 2 * sums * (of.tokens * of.hidden / of.ranks) * others + loss, .all_gather = log_sums};
}

/// What ranks that hold different experts exchange.
struct SpreadExperts {
  int ranks = 1;
  int64_t tokens = 1, hidden = 1;  // of one rank's micro-batch
  int64_t experts = 1, top_k = 1;
  int64_t layers = 1;  // with experts
  bool recomputes = false;
};

/// Along the expert axis, if tokens choose all experts equally often: then (N-1)/N of a rank's tokens * top_k rows go
/// to other ranks. Rows of `hidden` elements travel to the experts and back, and so do their gradients (arXiv
/// 2006.16668, section 2.2); the weights of the choices go with the gradients, and theirs come back. Before, ranks tell
/// each other how many rows come for each expert.
constexpr AxisTraffic spread_experts_traffic(const SpreadExperts& of) {
  const int64_t others = of.ranks - 1, rows = of.tokens * of.top_k / of.ranks * others;
  const int64_t forward_passes = of.recomputes ? 2 : 1;
  return {.all_gather = forward_passes * of.layers * of.experts * others,
          .all_to_all_v = of.layers * rows * ((2 * forward_passes + 2) * of.hidden + 2)};
}

}  // namespace nought::test
