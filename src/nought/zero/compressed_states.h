// What the optimizers that send signs keep beside their states: the errors of their compression, and what 0/1 Adam and
// 1-bit Lamb remember (compressed_update.cpp).
#pragma once

#include <string>
#include <vector>

#include "nought/zero/sign_exchange.h"

namespace nought {

struct CompressedStates {
  struct Segment {
    std::string name;
    SignExchange exchange;
    int64_t first_parameter = 0;  // of its parameters, among those of all segments
    // Of 0/1 Adam, over the segment: what this rank has moved since the ranks last met, and where they did.
    Tensor moved = {}, met = {};
  };
  std::vector<Segment> segments;  // as the optimizer has them
  Tensor coefficients = {};       // 1-bit Lamb, f64, by parameter: the mean trust ratio of the warm-up, the last factor
  Tensor rate_sum = {};           // 0/1 Adam, f64: the learning rates since the ranks last met
};

/// One compressed update of a segment.
struct SignedStep {
  CompressedStates::Segment& own;
  double lr = 0;
  double gradient_scale = 1;  // makes this rank's gradient the mean of its own samples
};

}  // namespace nought
