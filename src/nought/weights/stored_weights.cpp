#include "nought/weights/stored_weights.h"

#include <algorithm>

#include "nought/io/group_blocks.h"
#include "nought/kernels/four_bits.h"

namespace nought {

namespace {

/// Rows whose blocks are made at a time: words of some formats are those of several rows.
constexpr int64_t kRowsAtOnce = 64;

}  // namespace

std::optional<StoredFourBits> four_bits_of(const PackedTensor& packed) {
  const PackedMatrix& matrix = packed.matrix;
  const bool nf4 = matrix.format->codes == CodeTable::nf4, fp4 = matrix.format->codes == CodeTable::fp4;
  const bool plain = !packed.transposed && packed.rows.empty() && packed.first_row == 0 && packed.offset == 0 &&
                     packed.factor == 1 && packed.shape.numel() == matrix.rows * matrix.columns;
  if ((!nf4 && !fp4) || matrix.format->order != CodeOrder::flat || !plain) return std::nullopt;
  const CodeKind kind = nf4 ? CodeKind::nf4 : CodeKind::fp4;
  const int64_t numel = matrix.rows * matrix.columns;
  const auto& values = four_bit_values(kind);
  if (matrix.column_block != kFourBitBlock || numel % kFourBitBlock != 0 ||
      !std::equal(values.begin(), values.end(), matrix.values.begin()))
    return std::nullopt;
  const auto blocks = static_cast<size_t>(numel / kFourBitBlock);
  StoredFourBits stored{kind, matrix.codes.first(static_cast<size_t>(numel / 2)), {}, {}};
  if (matrix.nested.empty()) {
    if (matrix.scales.kind != PackedScales::Kind::f32) return std::nullopt;
    stored.scales = matrix.scales.bytes.first(blocks * sizeof(float));
    return stored;
  }
  if (matrix.nested_block != kNestedBlock || matrix.nested_values != nested_values()) return std::nullopt;
  stored.scales = matrix.scales.bytes.first(blocks);
  stored.nested = matrix.nested;
  stored.offset = matrix.nested_offset;
  return stored;
}

std::optional<StoredBlocks> blocks_of(const PackedTensor& packed) {
  const bool plain = !packed.transposed && packed.offset == 0 && packed.factor == 1 && packed.shape.rank() > 1 &&
                     packed.shape[-1] == packed.matrix.columns;
  const WeightFormat* format = plain ? group_format(packed.matrix) : nullptr;
  if (format == nullptr) return std::nullopt;
  return StoredBlocks{format, [&packed, format](Interval elements, std::byte* to) {
                        const int64_t width = packed.matrix.columns;
                        for (int64_t at = elements.begin; at < elements.end;) {
                          const int64_t row = at / width, column = at % width;
                          const bool whole = column == 0 && elements.end - at >= width && packed.rows.empty();
                          const int64_t rows = whole ? std::min(kRowsAtOnce, (elements.end - at) / width) : 1;
                          const Interval columns{column, std::min(width, column + elements.end - at)};
                          const int64_t first =
                              packed.rows.empty() ? packed.first_row + row : packed.rows[static_cast<size_t>(row)];
                          make_groups(*format, packed.matrix, {first, first + rows}, columns, to);
                          const int64_t count = rows * columns.size();
                          at += count, to += count / format->block * format->block_bytes;
                        }
                      }};
}

}  // namespace nought
