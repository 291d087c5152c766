#include "nought/io/group_blocks.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <mutex>
#include <numeric>
#include <vector>

#include "nought/io/convert.h"
#include "nought/io/packed_matrix.h"

namespace nought {

namespace {

constexpr int64_t kFewestOfGroup = 16;  // smaller blocks are mostly scales

int64_t scale_bytes(ScaleType type) {
  switch (type) {
    case ScaleType::f32:
      return 4;
    case ScaleType::f16:
    case ScaleType::bf16:
      return 2;
    default:
      return 1;
  }
}

/// Where the codes of a block begin.
int64_t head_bytes(const WeightFormat& format) {
  return scale_bytes(format.scale_type) + (format.offset == OffsetKind::zero_point ? 1 : 0);
}

/// What the codes of a table stand for, by their bits.
const std::array<float, 256>& values_of(CodeTable table, int bits) {
  constexpr size_t kTables = static_cast<size_t>(CodeTable::iq4) + 1, kBits = 9;
  static const auto all = [] {
    std::vector<std::array<float, 256>> made;
    for (size_t i = 0; i < kTables * kBits; ++i)
      made.push_back(code_values(static_cast<CodeTable>(i / kBits), std::max(1, static_cast<int>(i % kBits))));
    return made;
  }();
  return all[static_cast<size_t>(table) * kBits + static_cast<size_t>(bits)];
}

bool same(const WeightFormat& a, const WeightFormat& b) {
  return a.name == b.name && a.bits == b.bits && a.block == b.block && a.codes == b.codes && a.offset == b.offset &&
         a.scale_type == b.scale_type && a.factor == b.factor;
}

/// Codes as a stream, lowest bits first.
void pack(const uint8_t* codes, int64_t count, int bits, std::byte* to) {
  std::fill_n(to, count * bits / 8, std::byte{});
  for (int64_t i = 0; i < count; ++i) {
    const int64_t bit = i * bits;
    const uint32_t shifted = uint32_t{codes[i]} << (bit % 8);
    to[bit / 8] |= static_cast<std::byte>(shifted);
    if (shifted > 255) to[bit / 8 + 1] |= static_cast<std::byte>(shifted >> 8);
  }
}

/// The one object that is like this.
const WeightFormat& shared(const WeightFormat& wanted) {
  static std::mutex mutex;
  static std::deque<WeightFormat> all;
  const std::lock_guard lock(mutex);
  const auto found = std::find_if(all.begin(), all.end(), [&](const WeightFormat& each) { return same(each, wanted); });
  return found != all.end() ? *found : all.emplace_back(wanted);
}

}  // namespace

const WeightFormat* group_format(const PackedMatrix& matrix) {
  const WeightFormat& file = *matrix.format;
  const bool in_groups = matrix.group_of.empty() && matrix.column_block > 0;
  if (!in_groups || !matrix.nested.empty() || file.order == CodeOrder::flat || file.order == CodeOrder::blocks)
    return nullptr;
  const int bits = matrix.bits;
  const int64_t block = std::gcd(std::min(matrix.column_block, matrix.columns), matrix.columns);
  if (block < kFewestOfGroup || block * bits % 8 != 0 || bits < 1 || bits > 8) return nullptr;
  if (std::memcmp(&values_of(file.codes, bits), &matrix.values, sizeof(matrix.values)) != 0) return nullptr;
  WeightFormat wanted{.name = file.name,
                      .bits = bits,
                      .block = block,
                      .order = CodeOrder::groups,
                      .codes = file.codes,
                      .scales = ScaleKind::stored,
                      .offset = matrix.zeros == ZeroPoints::none ? OffsetKind::none : OffsetKind::zero_point,
                      .scale_type = matrix.scales.kind,
                      .factor = matrix.factor};
  wanted.block_bytes = head_bytes(wanted) + block * bits / 8;
  return &shared(wanted);
}

void make_groups(const WeightFormat& format, const PackedMatrix& matrix, Interval rows, Interval columns,
                 std::byte* to) {
  const int64_t of_scale = scale_bytes(format.scale_type);
  const std::vector<uint8_t> codes = matrix.codes_of(rows, columns);
  const uint8_t* from = codes.data();
  for (int64_t row = rows.begin; row < rows.end; ++row)
    for (int64_t begin = columns.begin; begin < columns.end; begin += format.block) {
      const int64_t group = begin / matrix.column_block, scale = matrix.scale_index(row, group);
      std::memcpy(to, matrix.scales.bytes.data() + scale * of_scale, static_cast<size_t>(of_scale));
      if (format.offset == OffsetKind::zero_point) to[of_scale] = std::byte{matrix.zero_code(row, group)};
      pack(from, format.block, format.bits, to + head_bytes(format));
      from += format.block, to += format.block_bytes;
    }
}

GroupHead head_of(const WeightFormat& format, const std::byte* block) {
  const int64_t of_scale = scale_bytes(format.scale_type);
  const float stored = PackedScales{{block, static_cast<size_t>(of_scale)}, format.scale_type}.at(0);
  GroupHead head{.scale = format.factor == 1 ? stored : stored / format.factor, .codes = block + head_bytes(format)};
  if (format.offset == OffsetKind::zero_point)
    head.zero = values_of(format.codes, format.bits)[std::to_integer<size_t>(block[of_scale])];
  return head;
}

void decode_group(const WeightFormat& format, const std::byte* block, Interval elements, float* values) {
  const std::array<float, 256>& table = values_of(format.codes, format.bits);
  const GroupHead head = head_of(format, block);
  if (format.bits == 8) {
    for (int64_t i = elements.begin; i < elements.end; ++i)
      *values++ = (table[std::to_integer<size_t>(head.codes[i])] - head.zero) * head.scale;
    return;
  }
  const uint32_t mask = (1u << format.bits) - 1;
  for (int64_t i = elements.begin; i < elements.end; ++i) {
    const int64_t bit = i * format.bits;
    uint32_t code = std::to_integer<uint32_t>(head.codes[bit / 8]) >> (bit % 8);
    if (bit % 8 + format.bits > 8) code |= std::to_integer<uint32_t>(head.codes[bit / 8 + 1]) << (8 - bit % 8);
    *values++ = (table[code & mask] - head.zero) * head.scale;
  }
}

}  // namespace nought
