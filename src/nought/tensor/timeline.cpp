#include "nought/tensor/timeline.h"

#include <utility>

namespace nought {

std::vector<TraceEvent> Timeline::take() {
  std::lock_guard lock(mutex_);
  return std::exchange(spans_, {});
}

void Timeline::add(TraceEvent span) {
  std::lock_guard lock(mutex_);
  spans_.push_back(std::move(span));
}

}  // namespace nought
