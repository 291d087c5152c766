// Rounding a weight to codes: each value to the nearest one, or column by column, so that what is lost in one column is
// made up for in those behind it (GPTQ, arXiv 2210.17323).
//
// weights: [rows, columns] f32 where host code may write; they become what the codes stand for. moments: the sum of x
// x^T over the inputs of the product, [columns, columns] f32. Results do not depend on the number of threads.
#pragma once

#include "nought/quantize/inverse_factor.h"
#include "nought/quantize/quantized_matrix.h"

namespace nought {

/// Rounds each value to the nearest code of its group.
QuantizedMatrix round_to_nearest(const Tensor& weights, const MatrixRule& rule);

/// What GPTQ goes by of the inputs of a product: one serves all weights that they are multiplied by. A column whose
/// inputs were all 0 is rounded to the nearest.
InverseFactor gptq_factor(const Context& context, const Tensor& moments, const MatrixRule& rule);
QuantizedMatrix quantize_gptq(const Context& context, const Tensor& weights, const InverseFactor& factor,
                              const MatrixRule& rule);

/// The sum of the squares of what a product's outputs change by: tr(D M D^T) for D = rounded - exact. Without moments:
/// for inputs that are independent and alike.
double output_loss(const Context& context, const Tensor& exact, const Tensor& rounded, const Tensor& moments);
/// That over the squares of the outputs, tr(W M W^T).
double relative_error(const Context& context, const Tensor& exact, const Tensor& rounded, const Tensor& moments);

}  // namespace nought
