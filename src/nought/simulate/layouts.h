// rank_layouts(): every layout of a run on so many ranks, the fastest first, and why others are left out.
#pragma once

#include <string>
#include <vector>

#include "nought/simulate/memory.h"
#include "nought/simulate/step.h"

namespace nought {

struct RankedLayout {
  SimulatedRun run;
  SimulatedStep step;
  SimulatedMemory memory;
};

/// A family of layouts that are left out for one reason.
struct LeftOut {
  std::string family;  // "tp 16", "tp 1 pp 2 cp 1"
  std::string reason;  // "crosses hosts: the fast link has 8 ranks"
};

struct LayoutRanking {
  std::vector<RankedLayout> best;
  std::vector<LeftOut> left_out;
  int64_t considered = 0;
};

/// The run's model, sequences and global batch on `ranks` of the cluster, over tp, pp, vp, cp, ep, dp, ZeRO stage,
/// micro-batch, recomputation and states on the host; at most `top` layouts. ConfigError, in one line, if nothing fits:
/// by how much, and what would; or if no layout divides ranks and batch.
LayoutRanking rank_layouts(const SimulatedRun& run, const Cluster& cluster, const FittedConstants& fitted, int ranks,
                           int top);

}  // namespace nought
