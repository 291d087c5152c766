// Batch: the rows of tokens of one forward pass, and where documents begin in them.
#pragma once

#include <cstdint>
#include <vector>

#include "nought/tensor/tensor.h"

namespace nought {

/// The id of a target that the loss ignores.
inline constexpr int32_t kIgnoredTarget = -100;

/// input_ids, targets: [rows, length] i32. The loss ignores targets that are kIgnoredTarget.
/// document_starts: for each row the positions at which documents begin, rising, the first always 0. Each document is a
/// sequence of its own: its positions begin at 0, and attention sees no other document. Empty: each row is one
/// sequence.
/// weights: [rows, length] f32, how much the loss of each target counts. Undefined: each counts 1.
struct Batch {
  Tensor input_ids, targets;
  std::vector<std::vector<int32_t>> document_starts = {};
  Tensor weights = {};
};

}  // namespace nought
