// The magnitudes of a decomposed adapter (DoRA, arXiv 2402.09353): y = magnitude / norm * (W x + scale * B A x).
#pragma once

#include <vector>

#include "nought/autograd/low_rank.h"

namespace nought {

/// The magnitudes of some columns of a result.
struct MagnitudeColumns {
  ParameterView magnitude;  // [end - begin]
  int64_t begin = 0, end = 0;
};

/// For each column of a result, the factor that it gets and the norm that its magnitude is divided by, both 1 where
/// there is no magnitude. f32 (f64 for f64).
struct ColumnFactors {
  Tensor factors, norms;
};

/// y = x * (factors - offset) + bias, by columns; bias may be undefined. The norms count as constants. x: [tokens,
/// out].
Var scale_columns(Tape& tape, const Var& x, const ColumnFactors& of, const std::vector<MagnitudeColumns>& columns,
                  const ParameterView& bias, double offset = 0);

/// x with what is dropped of it, as what add_low_rank() reads.
Var drop(Tape& tape, const Var& x, const LowRankDropout& dropout);

}  // namespace nought
