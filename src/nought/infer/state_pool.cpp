#include "nought/infer/state_pool.h"

#include <algorithm>
#include <cmath>

namespace nought {

void StatePool::add(std::span<const float> states) {
  if (sums()) sums_.resize(width_);
  for (; !states.empty() && !is_done(); states = states.subspan(width_)) {
    const std::span<const float> state = states.first(width_);
    if (sums()) {
      const double weight = mode_ == PoolingMode::weightedmean ? static_cast<double>(first_ + count_ + 1) : 1.0;
      weights_ += weight;
      for (size_t j = 0; j < width_; ++j) sums_[j] += weight * double{state[j]};
    } else if (mode_ == PoolingMode::max && count_ > 0) {
      for (size_t j = 0; j < width_; ++j) chosen_[j] = std::max(chosen_[j], state[j]);
    } else {
      chosen_.assign(state.begin(), state.end());
    }
    ++count_;
  }
}

std::vector<float> StatePool::result() const {
  if (!sums()) return chosen_;
  const double total = mode_ == PoolingMode::mean_sqrt_len ? std::sqrt(weights_) : weights_;
  std::vector<float> vector;
  for (const double sum : sums_) vector.push_back(static_cast<float>(sum / total));
  return vector;
}

}  // namespace nought
