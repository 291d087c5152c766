// StatePool: makes one vector of the hidden states of a text's tokens, which come some at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace nought {

/// How the hidden states of a text's tokens become one vector.
enum class PoolingMode : uint8_t {
  cls,            // the first
  max,            // the largest of each element
  mean,           // the sum, divided by the number of tokens
  mean_sqrt_len,  // the sum, divided by the root of their number
  weightedmean,   // token i, from 1 on, counts i times
  lasttoken       // the last
};

class StatePool {
 public:
  /// width: the elements of a state. first: the position of the first token that is pooled, from 0.
  StatePool(PoolingMode mode, int64_t width, int64_t first = 0)
      : mode_(mode), width_(static_cast<size_t>(width)), first_(first) {}
  /// Adds the states of the next tokens, one behind the other.
  void add(std::span<const float> states);
  /// Whether more states would change nothing.
  bool is_done() const { return mode_ == PoolingMode::cls && count_ > 0; }
  /// The vector of the states so far, of which there is one at least.
  std::vector<float> result() const;

 private:
  bool sums() const {
    return mode_ == PoolingMode::mean || mode_ == PoolingMode::mean_sqrt_len || mode_ == PoolingMode::weightedmean;
  }

  PoolingMode mode_;
  size_t width_;
  int64_t first_, count_ = 0;
  double weights_ = 0;         // how much the tokens count together
  std::vector<double> sums_;   // what modes that add have of each element
  std::vector<float> chosen_;  // what the other modes have
};

}  // namespace nought
