// What an adapter makes of the weight of a layer, on the host in fp32: for merging, and for the values that magnitudes
// begin with.
#pragma once

#include "nought/autograd/functions.h"
#include "nought/nn/adapter.h"

namespace nought {

/// The factors of what is added to a weight: scale * rows * columns.
struct WeightFactors {
  Tensor rows, columns;  // [rows of the weight, rank], [rank, columns of the weight]
  double scale = 1;
};
/// The factors that A [rank, in] and B [out, rank] are for a weight of this layout.
WeightFactors weight_factors(const Tensor& a, const Tensor& b, WeightLayout layout, double scale, Memory& memory);
/// Rows [first, first + its own) of a weight, plus their part of the product, in place.
void add_product(const Context& context, const WeightFactors& factors, int64_t first, const Tensor& rows);
/// The norm of what forms each output: of the rows of [out, in], or the columns of [in, out].
Tensor output_norms(const Context& context, const Tensor& weight, WeightLayout layout);

/// The transpose of a matrix on the host, in f32.
Tensor transposed(const Tensor& x, Memory& memory);

}  // namespace nought
