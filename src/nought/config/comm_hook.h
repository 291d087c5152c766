// CommHookArgs: how gradients are summed over ranks, in the words of accelerate's DistributedDataParallelKwargs and of
// torch's PowerSGDState.
#pragma once

#include <cstdint>
#include <string>

#include "nought/base/visit.h"

namespace nought {

struct CommHookArgs {
  Setting<std::string> comm_hook{"no"};
  Setting<int64_t> matrix_approximation_rank{int64_t{1}};
  Setting<int64_t> start_powerSGD_iter{int64_t{1000}};
  Setting<double> min_compression_rate{2.0};
  Setting<bool> use_error_feedback{true};
  Setting<bool> warm_start{true};

  template <class V>
  void visit(V& v) {
    v("comm_hook", comm_hook, "\"power_sgd\": at ZeRO stage 0 matrices of gradients travel as factors of low rank");
    v("matrix_approximation_rank", matrix_approximation_rank, "power_sgd: the rank of the factors");
    v("start_powerSGD_iter", start_powerSGD_iter, "power_sgd: updates with plain gradients before it begins");
    v("min_compression_rate", min_compression_rate,
      "power_sgd: a matrix is sent as factors if they have so many times fewer elements");
    v("use_error_feedback", use_error_feedback,
      "power_sgd: what the factors leave out is added to the rank's next gradient");
    v("warm_start", warm_start, "power_sgd: begin with the factor of the step before; false: with a random one");
  }
};

}  // namespace nought
