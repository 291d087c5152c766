#include "nought/io/parquet_encodings.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "nought/base/error.h"
#include "nought/io/thrift_compact.h"

namespace nought {

namespace {

/// Calls f(value) `count` times: for stretches of one number, and for groups of eight that are packed in bits.
template <class F>
void decode_runs(std::string_view bytes, int width, size_t count, F&& f) {
  require<IoError>(0 <= width && width <= 32, "numbers of {} bits", width);
  for (size_t done = 0; done < count;) {
    const uint64_t head = read_varint(bytes);
    if (head & 1) {
      const uint64_t groups = head >> 1;
      require<IoError>(groups > 0 && groups <= bytes.size() + 1, "{} groups of numbers in {} bytes", groups,
                       bytes.size());
      // The last group may be cut off behind the last number.
      const size_t numbers = std::min<size_t>(8 * groups, count - done);
      const std::string_view packed =
          take_bytes(bytes, std::min<uint64_t>(groups * static_cast<uint64_t>(width), bytes.size()));
      require<IoError>(numbers * static_cast<size_t>(width) <= 8 * packed.size(), "{} numbers of {} bits in {} bytes",
                       numbers, width, packed.size());
      for (size_t i = 0; i < numbers; ++i)
        f(static_cast<uint32_t>(bits_at(packed, i * static_cast<size_t>(width), width)));
      done += numbers;
    } else {
      const uint64_t length = head >> 1;
      require<IoError>(length > 0, "a stretch of no numbers");
      const std::string_view value = take_bytes(bytes, static_cast<uint64_t>(width + 7) / 8);
      const auto number = static_cast<uint32_t>(bits_at(value, 0, static_cast<int>(8 * value.size())));
      const size_t numbers = std::min<size_t>(length, count - done);
      for (size_t i = 0; i < numbers; ++i) f(number);
      done += numbers;
    }
  }
}

/// The bytes behind their number, in four bytes.
std::string_view behind_size(std::string_view bytes) {
  uint32_t size;
  std::memcpy(&size, take_bytes(bytes, sizeof(size)).data(), sizeof(size));
  return take_bytes(bytes, size);
}

}  // namespace

int bits_for(uint64_t most) { return static_cast<int>(std::bit_width(most)); }

uint64_t bits_at(std::string_view bytes, size_t at, int width) {
  if (width == 0) return 0;
  const size_t first = at / 8, shift = at % 8;
  uint64_t low = 0;
  std::memcpy(&low, bytes.data() + first, std::min(sizeof(low), bytes.size() - first));
  low >>= shift;
  if (shift + static_cast<size_t>(width) > 64)
    low |= uint64_t{static_cast<uint8_t>(bytes[first + sizeof(low)])} << (64 - shift);
  return width == 64 ? low : low & ((uint64_t{1} << width) - 1);
}

std::vector<uint8_t> decode_levels(std::string_view bytes, int most, size_t count) {
  std::vector<uint8_t> levels;
  levels.reserve(count);
  decode_runs(bytes, bits_for(static_cast<uint64_t>(most)), count, [&](uint32_t level) {
    require<IoError>(level <= static_cast<uint32_t>(most), "the level {} of {}", level, most);
    levels.push_back(static_cast<uint8_t>(level));
  });
  return levels;
}

std::vector<uint32_t> decode_indices(std::string_view bytes, size_t entries, size_t count) {
  std::vector<uint32_t> indices;
  if (count == 0) return indices;
  indices.reserve(count);
  const int width = take_bytes(bytes, 1)[0];
  decode_runs(bytes, width, count, [&](uint32_t index) {
    require<IoError>(index < entries, "entry {} of a dictionary of {}", index, entries);
    indices.push_back(index);
  });
  return indices;
}

std::vector<uint8_t> decode_booleans(std::string_view bytes, size_t count) {
  return decode_levels(behind_size(bytes), 1, count);
}

std::vector<int64_t> decode_deltas(std::string_view& bytes, size_t limit) {
  constexpr uint64_t kMostInBlock = 1 << 20;
  const uint64_t in_block = read_varint(bytes), parts = read_varint(bytes), count = read_varint(bytes);
  require<IoError>(
      parts > 0 && in_block > 0 && in_block <= kMostInBlock && in_block % parts == 0 && in_block / parts % 8 == 0,
      "blocks of {} differences in {} parts", in_block, parts);
  require<IoError>(count <= limit, "{} integers where {} are expected", count, limit);
  const size_t in_part = in_block / parts;
  std::vector<int64_t> values;
  values.reserve(count);
  auto value = static_cast<uint64_t>(read_zigzag(bytes));  // its differences may wrap around
  if (count > 0) values.push_back(static_cast<int64_t>(value));
  while (values.size() < count) {
    const auto least = static_cast<uint64_t>(read_zigzag(bytes));
    const std::string_view widths = take_bytes(bytes, parts);
    for (size_t part = 0; part < parts && values.size() < count; ++part) {
      const auto width = static_cast<uint8_t>(widths[part]);
      require<IoError>(width <= 64, "differences of {} bits", width);
      const std::string_view packed = take_bytes(bytes, in_part / 8 * width);
      for (size_t i = 0; i < in_part && values.size() < count; ++i) {
        value += least + bits_at(packed, i * width, width);
        values.push_back(static_cast<int64_t>(value));
      }
    }
  }
  return values;
}

}  // namespace nought
