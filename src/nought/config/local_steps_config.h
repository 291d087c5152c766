// The sections of training for workers that do not synchronize in every step.
#pragma once

#include <cstdint>

#include "nought/base/visit.h"

namespace nought {

/// DiLoCo and Streaming DiLoCo; the names are torchft's, those of the outer optimizer ours.
struct DilocoArgs {
  Setting<int64_t> sync_every;
  Setting<int64_t> num_fragments{int64_t{1}};
  Setting<int64_t> fragment_sync_delay{int64_t{0}};
  Setting<double> fragment_update_alpha{0.0};
  Setting<double> outer_lr{0.7};
  Setting<double> outer_momentum{0.9};
  Setting<bool> outer_nesterov{true};

  template <class V>
  void visit(V& v) {
    v("sync_every", sync_every,
      "DiLoCo: the replicas of dp_replicate_size are workers that make so many steps of their own, with the optimizer "
      "of this run, and agree on their weights then: gradients are not added over them; not given = they are, in "
      "every step");
    v("num_fragments", num_fragments,
      "Streaming DiLoCo: groups of Units that agree in turn, one every sync_every / num_fragments steps");
    v("fragment_sync_delay", fragment_sync_delay,
      "workers go on from what they agreed on so many steps after they began to; it travels beside these");
    v("fragment_update_alpha", fragment_update_alpha, "the part of its own weights that a worker keeps then, 0 to 1");
    v("outer_lr", outer_lr, "learning rate of the SGD that the mean of the workers' changes goes through");
    v("outer_momentum", outer_momentum, "its momentum; 0 = none, and no memory for it");
    v("outer_nesterov", outer_nesterov, "whether that is Nesterov's");
  }
};

/// Asynchronous data parallelism with rotating servers.
struct AsyncArgs {
  Setting<int64_t> staleness;

  template <class V>
  void visit(V& v) {
    v("staleness", staleness,
      "asynchronous data parallelism: every rank serves the parameters whose states it has, and the gradients of a "
      "step "
      "may be of parameters so many updates old; while they travel and are applied the passes go on; 0 = as without, "
      "to "
      "the bit; not given = without");
  }
};

}  // namespace nought
