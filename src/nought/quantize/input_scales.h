// Scales of the columns of weights by the size of their inputs, which are divided by as much: a column that is
// multiplied by large inputs is rounded finer (AWQ, arXiv 2306.00978), or what is large in the inputs is shared with
// the weights, so that both have room in 8 bits (SmoothQuant, arXiv 2211.10438).
//
// weights: [rows, columns] f32 where host code may write. inputs: those of their product. Results do not depend on the
// number of threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nought/quantize/product_inputs.h"
#include "nought/quantize/quantized_matrix.h"

namespace nought {

/// For each source of columns the scale at which the weights, which have the same inputs, lose least of their outputs
/// when their columns are multiplied by it and rounded to the nearest: of x^r, r = 0, 1/20 ... 19/20, for x the mean
/// magnitude of the inputs, so that the least times the greatest is 1. source: what divides the inputs of each column.
std::vector<float> activation_aware_scales(const Context& context, std::span<const Tensor> weights,
                                           const InputMoments& inputs, std::span<const int64_t> source,
                                           const MatrixRule& rule);

/// For each source max|x|^strength / max|w|^(1 - strength), of its inputs and of its columns in all the weights.
std::vector<float> smoothing_scales(std::span<const Tensor> weights, const InputMoments& inputs,
                                    std::span<const int64_t> source, double strength);

/// Clamps the groups of each row to 1, 0.95 ... 0.55 of their largest magnitude, whichever loses least of what the
/// group adds to the outputs when it is rounded to the nearest.
void clip_groups(const Context& context, const Tensor& weights, const InputMoments& inputs, const MatrixRule& rule);

/// Multiplies columns.
void scale_columns(const Tensor& weights, std::span<const float> scales);
/// The sums over inputs of which each was divided.
void divide_inputs(InputMoments& inputs, std::span<const float> scales);

}  // namespace nought
