// The keys of ds_config.json that say what stays gathered at stage 3.
#pragma once

#include <cstdint>

#include "nought/base/visit.h"

namespace nought {

/// Keys of the section zero_optimization, among its others.
struct DsLiveParameters {
  Auto<int64_t> stage3_max_live_parameters, stage3_max_reuse_distance;
  Auto<int64_t> max_live_parameters, max_reuse_distance;

  template <class V>
  void visit(V& v) {
    v("stage3_max_live_parameters", stage3_max_live_parameters,
      "at stage 3: so many elements of whole Units stay gathered between the passes of a step, the smallest Units "
      "first; nobody gathers them again before the next step, and no result changes. Not given or auto: as many as fit "
      "training.device_memory (and training.host_memory), which bound a number too; without a budget: none. "
      "DeepSpeed's "
      "default is 1e9");
    v("stage3_max_reuse_distance", stage3_max_reuse_distance,
      "a Unit does not stay if the passes before its next one read more elements than these; not given or auto: no "
      "limit");
    v("max_live_parameters", max_live_parameters, "another name of stage3_max_live_parameters");
    v("max_reuse_distance", max_reuse_distance, "another name of stage3_max_reuse_distance");
  }
};

}  // namespace nought
