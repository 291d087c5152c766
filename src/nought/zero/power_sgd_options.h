// The options of PowerSgd, by the names of torch's PowerSGDState.
#pragma once

#include <cstdint>

namespace nought {

struct PowerSgdOptions {
  int64_t rank = 1;                 // matrix_approximation_rank
  int64_t start_iter = 1000;        // start_powerSGD_iter: updates with plain gradients before it begins
  double min_compression_rate = 2;  // a matrix is compressed if its factors have so many times fewer elements
  bool use_error_feedback = true;   // what was left out is added to the next gradient
  bool warm_start = true;           // Q starts from the last step's; false: at random
  uint64_t seed = 0;                // of random starts
};

}  // namespace nought
