#include "nought/observe/pace.h"

#include <algorithm>
#include <vector>

namespace nought {

void Pace::add_step(double seconds) {
  constexpr int64_t kMemory = 50;  // steps
  constexpr size_t kRecent = 9;
  ++steps_;
  if (steps_ > 1) {
    recent_.push_back(seconds);
    if (recent_.size() > kRecent) recent_.pop_front();
    std::vector<double> sorted(recent_.begin(), recent_.end());
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>((sorted.size() - 1) / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    seconds = std::min(seconds, 3 * *middle);
  }
  const int64_t counted = std::clamp<int64_t>(steps_ - 1, 1, kMemory);
  mean_ += (seconds - mean_) / static_cast<double>(counted);
}

double Pace::seconds_for(int64_t steps) const {
  const double pause = steps_ > 0 ? paused_ / static_cast<double>(steps_) : 0;
  return static_cast<double>(steps) * (mean_ + pause);
}

}  // namespace nought
