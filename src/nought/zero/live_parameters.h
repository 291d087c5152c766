// LiveParameters: how much stays gathered between the passes that read it, where parameters are sharded.
#pragma once

#include <cstdint>
#include <limits>

namespace nought {

struct LiveParameters {
  /// Elements that stay, of whole Units. The Unit that computes and the next one come on top, if they do not stay.
  int64_t most = 0;
  /// A Unit stays if the passes before its next one read no more elements than these.
  int64_t reuse_distance = std::numeric_limits<int64_t>::max();
};

}  // namespace nought
