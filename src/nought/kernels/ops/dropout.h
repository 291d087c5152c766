// Dropout, whose random numbers are a function of what a row is and of the column.
#pragma once

#include "nought/kernels/operation.h"

namespace nought {

/// y = x / (1 - probability), and 0 where an element is dropped; y may be x unless it accumulates. x, y: [rows, n]. The
/// element of row i and column j is dropped if the 16 random bits of (key, rows[i], first_column + j) are below
/// 2^16 * probability. rows: i64, one for each row; it lies behind the counter of Philox, which eight columns share.
struct Dropout {
  Tensor x, rows, y;
  uint64_t key = 0;
  double probability = 0;
  int64_t first_column = 0;
  bool accumulate = false;

  /// Random bits below it drop an element.
  constexpr uint32_t threshold() const { return static_cast<uint32_t>(probability * 65536 + 0.5); }

  template <class V>
  void visit(V& v) const {
    v("x", x, kReads);
    v("rows", rows, kReads);
    v("y", y, kWrites.adding(accumulate));
    v("key", key);
    v("probability", probability);
    v("first_column", first_column);
    v("accumulate", accumulate);
  }
};

}  // namespace nought
