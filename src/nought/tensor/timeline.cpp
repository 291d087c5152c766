#include "nought/tensor/timeline.h"

#include <utility>

namespace nought {

std::vector<Span> Timeline::take() {
  std::lock_guard lock(mutex_);
  return std::exchange(spans_, {});
}

void Timeline::add(Span span) {
  std::lock_guard lock(mutex_);
  spans_.push_back(std::move(span));
}

}  // namespace nought
