// Values on the grids of few bits that a model will be kept or computed in, for training that knows of them: weights in
// groups, inputs row by row (kernels/rounding_grid.h).
#pragma once

#include "nought/kernels/operation.h"
#include "nought/kernels/rounding_grid.h"

namespace nought {

/// y = x on the grids that `nought quantize` would choose for it: each group of columns of a row has one, the last
/// group of a row may be shorter; with `square` so many rows share it. A group with a value that is not finite becomes
/// NaN. x, y: [rows, columns], the same float dtype; y may be x.
struct RoundToGrid {
  Tensor x, y;
  int64_t group_size = 32;  // columns
  bool square = false;
  int bits = 4;
  bool symmetric = true;
  CodeTable codes = CodeTable::natural;  // or e2m1, e4m3

  GridRule rule() const { return {.bits = bits, .symmetric = symmetric, .codes = codes}; }
  template <class V>
  void visit(V& v) const {
    v("x", x, kReads);
    v("y", y, kWrites);
    v("group_size", group_size);
    v("square", square);
    v("bits", bits);
    v("symmetric", symmetric);
    v("codes", codes);
  }
};

/// What each row of x reaches: ranges[row] = {-min, max}, and infinity twice if a value is not finite. So ranks that
/// have parts of rows share what whole rows reach by the larger one of theirs. x: [.., n] float; ranges: [rows, 2] f32.
struct RowRanges {
  Tensor x, ranges;

  template <class V>
  void visit(V& v) const {
    v("x", x, kReads);
    v("ranges", ranges, kWrites.perhaps_infinite());
  }
};

/// y = x with each row on the grid of RowSteps that its range has; a row whose range is not finite becomes NaN. x, y:
/// the same float dtype; ranges: of RowRanges.
struct RoundRows {
  Tensor x, ranges, y;
  RowGrid grid = RowGrid::affine;
  int bits = 8;

  template <class V>
  void visit(V& v) const {
    v("x", x, kReads);
    v("ranges", ranges, kReads);
    v("y", y, kWrites);
    v("grid", grid);
    v("bits", bits);
  }
};

/// y[i] = x[i] where bit (first + i) % 8 of bits[(first + i) / 8] is 1, else 0, whatever x[i] is. x, y: [n], the same
/// float dtype; y may be x. bits: u8, enough of them.
struct KeepMasked {
  Tensor bits, x, y;
  int64_t first = 0;

  template <class V>
  void visit(V& v) const {
    v("bits", bits, kReads);
    v("x", x, kReads);
    v("y", y, kWrites);
    v("first", first);
  }
};

}  // namespace nought
