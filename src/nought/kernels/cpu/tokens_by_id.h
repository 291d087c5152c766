// Tokens grouped by their id, so that the gradient of each table row can be added up by one thread in a fixed order.
#pragma once

#include <vector>

#include "nought/tensor/tensor.h"

namespace nought::cpu {

/// The tokens of id v are order[start[v]] ... order[start[v + 1] - 1], in their order.
struct TokensById {
  /// A counting sort, which is stable. ids: [tokens] i32 in [0, table_rows).
  TokensById(const Tensor& ids, int64_t table_rows)
      : start(static_cast<size_t>(table_rows) + 1), order(static_cast<size_t>(ids.numel())) {
    const int32_t* id = ids.data<int32_t>();
    for (size_t t = 0; t < order.size(); ++t) ++start[static_cast<size_t>(id[t]) + 1];
    for (size_t v = 1; v < start.size(); ++v) start[v] += start[v - 1];
    std::vector<int32_t> next(start.begin(), start.end() - 1);
    for (size_t t = 0; t < order.size(); ++t) {
      order[static_cast<size_t>(next[static_cast<size_t>(id[t])]++)] = static_cast<int32_t>(t);
    }
  }

  std::vector<int32_t> start, order;
};

}  // namespace nought::cpu
