// How Parquet packs numbers: runs of one value, groups of bits, and differences.
//
// Source: parquet-format 2.11, Encodings.md. All take bytes that others wrote: what does not fit is an IoError, without
// the name of the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace nought {

/// How many bits the numbers from 0 to `most` need.
int bits_for(uint64_t most);

/// The number of `width` bits, at most 64, that begins at bit `at`; the lowest bit of a byte comes first. The bytes
/// must reach to its end.
uint64_t bits_at(std::string_view bytes, size_t at, int width);

/// Levels, each at most `most`.
std::vector<uint8_t> decode_levels(std::string_view bytes, int most, size_t count);
/// Indices of a dictionary with `entries` entries, behind a byte that says how many bits each has.
std::vector<uint32_t> decode_indices(std::string_view bytes, size_t entries, size_t count);
/// The booleans 0 and 1 in runs, behind the number of their bytes.
std::vector<uint8_t> decode_booleans(std::string_view bytes, size_t count);

/// DELTA_BINARY_PACKED: integers as differences. Takes their bytes away. At most `limit` of them.
std::vector<int64_t> decode_deltas(std::string_view& bytes, size_t limit);

}  // namespace nought
