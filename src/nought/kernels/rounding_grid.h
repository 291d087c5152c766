// RoundingGrid: the numbers that a group of weights is rounded to: what codes stand for, times a scale. RowSteps: those
// of a row of inputs, which no file holds.
//
// Design goals: a code means what the formats of folders say it means, with the scale that the file holds. So codes are
// chosen for the scale after it was rounded to what the file has room for. `nought quantize` writes these codes, and a
// training for few bits (RoundToGrid) computes with their values.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "nought/compress/input_rounding.h"
#include "nought/io/weight_formats.h"

namespace nought {

struct GridRule {
  int bits = 4;
  bool symmetric = true;  // the zero point is half of the codes; else a code of its own for each group
  /// natural: whole multiples of the scale from the zero point on, (code - zero) * scale. e2m1, e4m3: floats, which
  /// have no zero point.
  CodeTable codes = CodeTable::natural;

  int count() const { return 1 << bits; }
};

struct RoundingGrid {
  float scale = 1;
  int zero = 0, last = 15;  // codes are 0 to last
  CodeTable codes = CodeTable::natural;

  /// The nearest code, of two that are as near the even one.
  int code_of(float value) const;
  float value_of(int code) const;
  float rounded(float value) const { return value_of(code_of(value)); }
};

/// The grid that reaches from the least to the greatest of the values, and to 0. Whole numbers have a scale of f16,
/// symmetric ones 2 * max / (codes - 1), as GPTQ has it. e4m3 has one of f32, max / 448. e2m1 has a power of two: of
/// the two that let the greatest value become 4 or 6, the one that loses less.
RoundingGrid grid_of(std::span<const float> values, const GridRule& rule);
/// The grid of values of which these are the least and the greatest; not of e2m1, which looks at all of them.
RoundingGrid grid_of_range(float least, float greatest, const GridRule& rule);

std::string_view name_of(CodeTable codes);

/// Whole multiples of a scale, (first to last) * scale + zero. A scale of 0 leaves values as they are. e4m3 has a scale
/// alone.
struct RowSteps {
  float scale = 0, zero = 0, first = 0, last = 0;

  RowSteps(RowGrid grid, int bits, float least, float greatest);
  float rounded(RowGrid grid, float value) const;
};

}  // namespace nought
