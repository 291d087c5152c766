#include "nought/kernels/limits.h"

#include "nought/bench/bench.h"

namespace nought {

Limits measured_limits() { return {.matrix = measure_matrix_peak, .memory = measure_triad}; }

}  // namespace nought
