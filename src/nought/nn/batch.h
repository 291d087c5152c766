// Batch: the rows of tokens of one forward pass, and where documents begin in them.
#pragma once

#include <cstdint>
#include <vector>

#include "nought/tensor/tensor.h"

namespace nought {

/// A target that takes no part in the loss.
inline constexpr int32_t kIgnoredTarget = -100;

/// input_ids, targets: [rows, length] i32; target kIgnoredTarget is ignored. document_starts: for each row, where in it
/// documents begin, rising, the first always 0: each is a sequence of its own, with positions from 0 on, and sees
/// nothing of the others. None for rows that are one sequence each. weights: [rows, length] f32, how much the loss of
/// each target counts; undefined if all count 1.
struct Batch {
  Tensor input_ids, targets;
  std::vector<std::vector<int32_t>> document_starts = {};
  Tensor weights = {};
};

}  // namespace nought
