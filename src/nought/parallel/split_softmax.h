// The cross-entropy of logits of which only some columns are here: the softmax over all columns is that over these and
// one more for each other part, the logarithm of the sum of its exponentials. So the cross-entropy of whole rows
// serves, in f32 whatever the logits' dtype: a logarithm that is rounded to 16 bits would be wrong by more than a
// target's logit. The parts are those of ranks (parallel/vocabulary) or of tiles (parallel/vocabulary_tiles).
#pragma once

#include <functional>
#include <span>

#include "nought/kernels/kernels.h"

namespace nought {

/// The id of a target that a loss ignores; see CrossEntropy.
inline constexpr int32_t kIgnoredId = -100;

/// f(place, value) of each value, [values] i32 where kernels read it. Where memory is only counted there is nothing to
/// read, and they are not read.
Tensor mapped_ids(const Context& context, std::span<const int32_t> values,
                  const std::function<int32_t(int32_t place, int32_t value)>& f);

/// The logarithm of each row's sum of exponentials: [rows], dtype f32 (f64 for f64).
Tensor log_sums(const Context& context, const Tensor& logits, DType dtype);

/// What is known of the columns of the other parts.
struct PartSums {
  Tensor log_sums;  // [parts, rows]: log_sums() of each part
  int parts = 1, part = 0;
  Interval rows;  // which of its rows are meant
};

/// CrossEntropy of rows of logits [rows, columns], beside a column for each other part. Target `columns` is the first
/// of these. losses: [rows], to be written. gradient: the logits become their gradients.
struct PartTargets {
  Tensor targets, weights;  // of these rows; weights may be undefined
  Tensor losses;
  bool gradient = false;
  double gradient_scale = 1;
};
void cross_entropy_of_part(const Context& context, const Tensor& logits, const PartSums& sums,
                           const PartTargets& targets);

}  // namespace nought
