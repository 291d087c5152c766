#include "nought/io/packed_matrix.h"

#include <algorithm>
#include <cstring>

#include "nought/io/convert.h"

namespace nought {

namespace {

constexpr int kWordBits = 32;
/// The place in a word of AWQ of each of its eight outputs.
constexpr int kAwqPlace[] = {0, 4, 1, 5, 2, 6, 3, 7};

template <class T>
T read_at(const std::byte* bytes, int64_t index) {
  T value;
  std::memcpy(&value, bytes + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

/// The code that begins at a bit of a stream, lowest bits first. It has at most eight bits.
uint32_t field(const std::byte* stream, int64_t bit, int bits) {
  const std::byte* at = stream + bit / 8;
  const auto within = static_cast<int>(bit % 8);
  uint32_t value = std::to_integer<uint32_t>(at[0]);
  if (within + bits > 8) value |= std::to_integer<uint32_t>(at[1]) << 8;
  return value >> within & ((1u << bits) - 1);
}

/// The code that begins at a bit of a stream of words, each `stride` words behind the one before. `more` is added to
/// each word.
uint32_t field_of_words(const std::byte* words, int64_t stride, int64_t bit, int bits, uint32_t more = 0) {
  const int64_t word = bit / kWordBits;
  const auto within = static_cast<int>(bit % kWordBits);
  uint64_t value = read_at<uint32_t>(words, word * stride) + more;
  if (within + bits > kWordBits) value |= uint64_t{read_at<uint32_t>(words, (word + 1) * stride) + more} << kWordBits;
  return static_cast<uint32_t>(value >> within) & ((1u << bits) - 1);
}

/// One in each field of a word: what GPTQ's first version took from whole words, borrows included.
uint32_t ones(int bits) {
  uint32_t word = 0;
  for (int bit = 0; bit < kWordBits; bit += bits) word |= 1u << bit;
  return word;
}

}  // namespace

float PackedScales::at(int64_t index) const {
  const auto byte = [&] { return std::to_integer<uint8_t>(bytes[static_cast<size_t>(index)]); };
  const auto bits = [&] { return read_at<uint16_t>(bytes.data(), index); };
  switch (kind) {
    case Kind::f32:
      return read_at<float>(bytes.data(), index);
    case Kind::f16: {
      f16_t value;
      value.bits = bits();
      return value;
    }
    case Kind::bf16: {
      bf16_t value;
      value.bits = bits();
      return value;
    }
    case Kind::e4m3:
      return nought::decode(Float8::e4m3, byte());
    case Kind::e8m0:
      return e8m0_value(byte());
    case Kind::u8:
      return static_cast<float>(byte());
  }
  return 0;
}

float PackedMatrix::scale_of(int64_t index) const {
  if (!nested.empty()) {
    const auto code = std::to_integer<size_t>(scales.bytes[static_cast<size_t>(index)]);
    return nested_values[code] * read_at<float>(nested.data(), index / nested_block) + nested_offset;
  }
  const float scale = scales.at(index);
  return factor == 1 ? scale : scale / factor;
}

uint8_t PackedMatrix::zero_code(int64_t row, int64_t group) const {
  const int64_t words = ceil_div(rows * bits, kWordBits);
  uint32_t code = 0;
  switch (zeros) {
    case ZeroPoints::none:
      break;
    case ZeroPoints::int8:
      return std::to_integer<uint8_t>(zero_codes[static_cast<size_t>(row / row_block * groups() + group)]);
    case ZeroPoints::along_rows: {
      const std::byte* of_group = zero_codes.data() + group * words * 4;
      const bool by_word = one_less && kWordBits % bits == 0;  // three bits straddle words: each is one less
      code = field_of_words(of_group, 1, row * bits, bits, by_word ? ones(bits) : 0);
      if (one_less && !by_word) code = (code + 1) & ((1u << bits) - 1);
      break;
    }
    case ZeroPoints::awq:
      code = read_at<uint32_t>(zero_codes.data(), group * words + row / 8) >> (4 * kAwqPlace[row % 8]) & 15;
      break;
    case ZeroPoints::across:
      code = field_of_words(zero_codes.data() + group * 4, groups(), row * bits, bits);
      break;
  }
  return static_cast<uint8_t>(code);
}

float PackedMatrix::zero_of(int64_t row, int64_t group) const {
  if (zeros == ZeroPoints::none) return 0;
  const uint8_t code = zero_code(row, group);
  return zeros == ZeroPoints::int8 ? static_cast<float>(static_cast<int8_t>(code)) : values[code];
}

std::vector<uint8_t> PackedMatrix::codes_of(Interval of_rows, Interval of_columns) const {
  static const Table plain = code_values(CodeTable::natural, 8);
  std::vector<float> numbers(static_cast<size_t>(of_rows.size() * of_columns.size()));
  unpack(of_rows, of_columns, plain, numbers.data());
  std::vector<uint8_t> all(numbers.size());
  std::transform(numbers.begin(), numbers.end(), all.begin(), [](float code) { return static_cast<uint8_t>(code); });
  return all;
}

void PackedMatrix::scale_row(int64_t row, Interval of_columns, float* target) const {
  const auto scale_at = [&](int64_t group) { return scale_of(scale_index(row, group)); };
  if (format->order == CodeOrder::flat) {
    const int64_t from = row * columns;
    for (int64_t at = from + of_columns.begin; at < from + of_columns.end;) {
      const int64_t block = at / column_block, end = std::min(from + of_columns.end, (block + 1) * column_block);
      const float scale = scale_of(block);
      for (; at < end; ++at) *target++ *= scale;
    }
    return;
  }
  if (!group_of.empty()) {
    std::vector<float> scale(static_cast<size_t>(num_groups)), zero(scale.size());
    for (size_t g = 0; g < scale.size(); ++g) {
      scale[g] = scale_at(static_cast<int64_t>(g));
      zero[g] = zero_of(row, static_cast<int64_t>(g));
    }
    for (int64_t column = of_columns.begin; column < of_columns.end; ++column, ++target) {
      const auto group = static_cast<size_t>(group_of[static_cast<size_t>(column)]);
      *target = (*target - zero[group]) * scale[group];
    }
    return;
  }
  for (int64_t column = of_columns.begin; column < of_columns.end;) {
    const int64_t group = column / column_block, end = std::min(of_columns.end, (group + 1) * column_block);
    const float scale = scale_at(group), zero = zero_of(row, group);
    for (; column < end; ++column, ++target) *target = (*target - zero) * scale;
  }
}

/// Neighbours in the file are of different rows: a word of each in turn, so that a line of the cache serves all of
/// them.
void PackedMatrix::unpack_down_words(Interval of_rows, Interval of_columns, const Table& table, float* target) const {
  const int64_t width = of_columns.size();
  const int64_t step = kWordBits % bits == 0 ? kWordBits / bits : 1;  // codes of a word; three bits straddle words
  const uint32_t mask = (1u << bits) - 1;
  for (int64_t column = of_columns.begin; column < of_columns.end;) {
    const int64_t end = std::min(of_columns.end, (column / step + 1) * step);
    for (int64_t row = of_rows.begin; row < of_rows.end; ++row) {
      float* to = target + (row - of_rows.begin) * width + column - of_columns.begin;
      const std::byte* words = codes.data() + row * 4;
      if (step == 1) {
        *to = table[field_of_words(words, rows, column * bits, bits)];
        continue;
      }
      uint32_t word = read_at<uint32_t>(words, column / step * rows) >> (column % step * bits);
      for (int64_t i = column; i < end; ++i, word >>= bits) *to++ = table[word & mask];
    }
    column = end;
  }
}

void PackedMatrix::unpack(Interval of_rows, Interval of_columns, const Table& table, float* target) const {
  switch (format->order) {
    case CodeOrder::rows: {
      const int64_t row_bytes = std::ssize(codes) / rows;
      for (int64_t row = of_rows.begin; row < of_rows.end; ++row) {
        const std::byte* stream = codes.data() + row * row_bytes;
        for (int64_t column = of_columns.begin; column < of_columns.end; ++column)
          *target++ = table[field(stream, column * bits, bits)];
      }
      return;
    }
    case CodeOrder::flat:
      for (int64_t row = of_rows.begin; row < of_rows.end; ++row)
        for (int64_t at = row * columns + of_columns.begin; at < row * columns + of_columns.end; ++at) {
          const auto byte = std::to_integer<size_t>(codes[static_cast<size_t>(at / 2)]);
          *target++ = table[at % 2 == 0 ? byte >> 4 : byte & 15];
        }
      return;
    case CodeOrder::down_words:
      return unpack_down_words(of_rows, of_columns, table, target);
    case CodeOrder::awq:
      for (int64_t row = of_rows.begin; row < of_rows.end; ++row) {
        const std::byte* words = codes.data() + row / 8 * 4;
        const int place = 4 * kAwqPlace[row % 8];
        for (int64_t column = of_columns.begin; column < of_columns.end; ++column)
          *target++ = table[read_at<uint32_t>(words, column * (rows / 8)) >> place & 15];
      }
      return;
    case CodeOrder::blocks:
    case CodeOrder::groups:
      return;
  }
}

void PackedMatrix::decode_whole_blocks(Interval of_rows, Interval of_columns, float* target) const {
  const int64_t block = format->block, row_bytes = columns / block * format->block_bytes;
  const Interval of_blocks{of_columns.begin / block, ceil_div(of_columns.end, block)};
  std::vector<float> whole(static_cast<size_t>(of_blocks.size() * block));
  for (int64_t row = of_rows.begin; row < of_rows.end; ++row, target += of_columns.size()) {
    decode_blocks(*format->gguf, codes.data() + row * row_bytes + of_blocks.begin * format->block_bytes,
                  of_blocks.size(), whole.data());
    std::copy_n(whole.data() + of_columns.begin - of_blocks.begin * block, of_columns.size(), target);
  }
}

void PackedMatrix::decode(Interval of_rows, Interval of_columns, float* target) const {
  if (format->order == CodeOrder::blocks) return decode_whole_blocks(of_rows, of_columns, target);
  unpack(of_rows, of_columns, values, target);
  for (int64_t row = of_rows.begin; row < of_rows.end; ++row, target += of_columns.size())
    scale_row(row, of_columns, target);
}

}  // namespace nought
