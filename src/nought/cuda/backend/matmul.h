// The kernels around products: what the library does not do itself.
#pragma once

#include "nought/cuda/backend/launch.h"
#include "nought/kernels/weight.h"

namespace nought::cuda {

/// c = bias [+ c], row by row; 0 in place of a bias that is not there. Both in float dtypes of their own; c: [m, n].
void begin_product(const Launch& where, Array bias, Array c, bool accumulate, int64_t m, int64_t n);
/// y = the values of the weight's codes, rounded to y's dtype.
void decode_weight(const Launch& where, const Weight& weight, Array y);

}  // namespace nought::cuda
