#include "nought/compress/sparse_pruning.h"

#include <fmt/core.h>

namespace nought {

std::string SparsePruning::describe(const PrunedGroup& group) const {
  return fmt::format("the {:.4g}% largest weights, from step {} on", 100 * group.dense_ratio, schedule_offset + 1);
}

}  // namespace nought
