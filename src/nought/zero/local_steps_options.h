// Options of local steps: workers that update their own weights and agree on them now and then.
#pragma once

#include <cstdint>

namespace nought {

/// DiLoCo (arXiv 2311.08105) and, with several fragments or a delay, Streaming DiLoCo (arXiv 2501.18512); the names are
/// torchft's. Counted in steps, an update that was skipped included.
struct LocalStepsOptions {
  int64_t sync_every = 500;  // every worker makes so many steps between two synchronizations of a fragment
  int64_t fragments = 1;     // groups of Units, which synchronize in turn, one every sync_every / fragments steps
  int64_t delay = 0;         // so many steps after it began to synchronize, a fragment goes on from the result
  double keeps_local = 0;    // the part of its own weights that a worker keeps then (fragment_update_alpha)
  double lr = 0.7, momentum = 0.9;  // of the outer SGD
  bool nesterov = true;

  /// Steps between the synchronizations of one fragment and the next.
  int64_t interval() const { return sync_every / fragments; }
};

}  // namespace nought
