// PackedMatrix: a matrix of a file whose elements are codes, and how any rectangle of it is decoded.
//
// Design goals: one reader for every row of the table of formats. It touches the blocks that the rectangle meets and no
// others, so that a rank that holds a part of a matrix pays for that part.
// Non-goals: names and shapes of tensors (models/packed_weights.h), which were checked before.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "nought/base/math.h"
#include "nought/io/weight_formats.h"

namespace nought {

/// Scales, or zero points, as a file has them.
struct PackedScales {
  using Kind = ScaleType;
  std::span<const std::byte> bytes;
  Kind kind = Kind::f32;

  float at(int64_t index) const;
};

/// Zero points of the groups of rows.
enum class ZeroPoints : uint8_t {
  none,
  int8,        // one byte where the scale of the group is
  along_rows,  // words [groups, ceil(rows * bits / 32)], a stream of codes along the rows
  awq,         // the same in AWQ's order
  across,      // words [ceil(rows * bits / 32), groups]: for each group a stream of codes along the rows
};

struct PackedMatrix {
  const WeightFormat* format = nullptr;
  int64_t rows = 0, columns = 0;     // out and in
  int bits = 0;                      // a code takes so many, where codes lie in a tensor of their own
  std::span<const std::byte> codes;  // and of the formats of blocks all there is
  std::array<float, 256> values{};   // what each code stands for

  PackedScales scales;
  int64_t row_block = 1;          // rows that share a scale
  int64_t column_block = 0;       // columns that share one; of the order "flat" neighbours of the flattened matrix
  bool scales_by_group = false;   // [groups, rows]; else [row blocks, groups]
  float factor = 1;               // bitsandbytes: 127, which divides the scales of LLM.int8; NVFP4: the global scale
  std::vector<int32_t> group_of;  // by column; empty: column / column_block

  ZeroPoints zeros = ZeroPoints::none;
  std::span<const std::byte> zero_codes;
  bool one_less = false;  // GPTQ's first version stores zero points less one

  // Scales that are codes of larger blocks: nested_values[code] * nested[index / nested_block] + nested_offset.
  std::span<const std::byte> nested;  // f32; empty: they are none
  std::array<float, 256> nested_values{};
  int64_t nested_block = 256;
  float nested_offset = 0;

  int64_t groups() const { return group_of.empty() ? ceil_div(columns, column_block) : num_groups; }
  int64_t num_groups = 0;  // with group_of

  /// Decodes a rectangle, row by row, into `target`, which has room for it.
  void decode(Interval of_rows, Interval of_columns, float* target) const;

  // What group_blocks.h reads, of a matrix that is no GGUF's.
  /// The codes of a rectangle, row by row, a byte each.
  std::vector<uint8_t> codes_of(Interval of_rows, Interval of_columns) const;
  /// Where the scale of a group of a row lies.
  int64_t scale_index(int64_t row, int64_t group) const {
    return scales_by_group ? group * rows + row : row / row_block * groups() + group;
  }
  /// Its zero point: values[code] is subtracted.
  uint8_t zero_code(int64_t row, int64_t group) const;

 private:
  using Table = std::array<float, 256>;
  void decode_whole_blocks(Interval of_rows, Interval of_columns, float* target) const;
  void unpack(Interval of_rows, Interval of_columns, const Table& table, float* target) const;
  void unpack_down_words(Interval of_rows, Interval of_columns, const Table& table, float* target) const;
  void scale_row(int64_t row, Interval of_columns, float* target) const;
  float scale_of(int64_t index) const;
  float zero_of(int64_t row, int64_t group) const;
};

}  // namespace nought
