#include "nought/observe/pace.h"

#include <algorithm>

namespace nought {

void Pace::add_step(double seconds) {
  constexpr int64_t kMemory = 50;  // steps
  ++steps_;
  const int64_t counted = std::clamp<int64_t>(steps_ - 1, 1, kMemory);
  mean_ += (seconds - mean_) / static_cast<double>(counted);
}

double Pace::seconds_for(int64_t steps) const {
  const double pause = steps_ > 0 ? paused_ / static_cast<double>(steps_) : 0;
  return static_cast<double>(steps) * (mean_ + pause);
}

}  // namespace nought
