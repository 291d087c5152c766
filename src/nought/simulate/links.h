// What collectives take on a cluster: over the links that a group of ranks really crosses.
//
// A collective takes, by NCCL's protocols, the least of latency + bytes / bandwidth over all of them. A ring moves
// 2 (k - 1) / k of an all-reduce's bytes through each rank, and half of that for an all-gather or a reduce-scatter. A
// group of n domains with g members in each uses g network cards at once.
#pragma once

#include "nought/simulate/cluster.h"
#include "nought/simulate/fitted.h"

namespace nought {

/// Ranks that exchange: `size` of them, each `stride` ranks behind the one before.
struct RankGroup {
  double size = 1, stride = 1;
};

class Links {
 public:
  Links(const Cluster& cluster, const FittedConstants& fitted) : cluster_(cluster), fitted_(fitted) {}

  /// Seconds of collectives of `bytes` in all: what each rank has, before or after.
  double all_reduce(double bytes, RankGroup group) const;
  double all_gather(double bytes, RankGroup group) const;
  double reduce_scatter(double bytes, RankGroup group) const { return all_gather(bytes, group); }
  /// Each rank sends its tokens, of `bytes` in all, to the ranks of the `choices` experts of each, which any of the
  /// group may have. A domain of the fast link gets a token once over the network, and hands it on.
  double to_experts(double bytes, double choices, RankGroup group) const;
  /// A message of `bytes` to the rank that is `distance` further.
  double message(double bytes, double distance) const;

 private:
  /// Members of a group in one domain of the fast link.
  double inside(RankGroup group) const;
  /// Seconds of a ring in which `bytes` pass each rank, in `hops` hops.
  double ring(double bytes, double hops, RankGroup group) const;

  Cluster cluster_;
  FittedConstants fitted_;
};

}  // namespace nought
