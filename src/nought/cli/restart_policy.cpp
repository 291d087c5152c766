#include "nought/cli/restart_policy.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace nought {

std::optional<double> RestartPolicy::after(const JobFailure& failure) {
  if (failure.checkpoint > checkpoint_) left_ = restarts_;
  checkpoint_ = failure.checkpoint;
  same_ = failure.step == step_ ? same_ + 1 : 1;
  step_ = failure.step;
  if (same_ >= kSameStep) {
    give_up_ = fmt::format("step {} failed {} times in a row, the last time with: {}", step_, same_, failure.cause);
    return std::nullopt;
  }
  if (left_ == 0) {
    give_up_ = fmt::format("no restart is left of {} since the last checkpoint; step {} failed with: {}", restarts_,
                           step_, failure.cause);
    return std::nullopt;
  }
  const double pause = first_pause_ * std::exp2(static_cast<double>(restart()));
  --left_;
  return std::min(pause, kLongestPause);
}

}  // namespace nought
