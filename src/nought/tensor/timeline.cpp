#include "nought/tensor/timeline.h"

#include <utility>

namespace nought {

std::vector<TraceEvent> Timeline::take() {
  std::lock_guard lock(mutex_);
  return std::exchange(events_, {});
}

void Timeline::add(TraceEvent event) {
  std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
}

}  // namespace nought
