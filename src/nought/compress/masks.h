// Masks of pruning: which weights of a matrix stay, 1, and which are taken as zero, 0.
//
// Design goals: DeepSpeed's masks (TopKBinarizer of compression/utils.py) and neural-compressor's patterns, which its
// snip_momentum takes. Of equal scores the first stays.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nought {

using Mask = std::vector<uint8_t>;

/// Keeps the ceil(dense_ratio * n) largest scores.
Mask keep_largest(std::span<const float> scores, double dense_ratio);
/// Keeps the weights of the largest magnitudes.
Mask l1_mask(std::span<const float> weight, double dense_ratio);
/// Keeps rows by the sums of their magnitudes: a number for each of `rows`.
Mask l1_rows(std::span<const float> weight, int64_t rows, double dense_ratio);

/// What is pruned together: blocks of so many rows and columns, "4x1", or so many of each few neighbours in a row,
/// "2:4".
struct BlockPattern {
  int64_t rows = 1, columns = 1;
  int64_t pruned = 0, of = 0;  // with a colon: `pruned` of each `of` neighbours; else 0

  bool among_neighbours() const { return of > 0; }
  bool operator==(const BlockPattern&) const = default;
};
/// ConfigError for what is no pattern; `place` begins it.
BlockPattern block_pattern(std::string_view text, const std::string& place);
/// ConfigError unless the pattern divides a matrix of this shape; `name` is the layer's.
void require_divides(const BlockPattern& pattern, std::string_view name, int64_t rows, int64_t columns);

/// Prunes so large a part of a matrix [rows, columns], in whole blocks of the smallest mean scores. Among neighbours
/// these are the `pruned` smallest of each `of`, and where sparsity is below pruned / of, in that share of all groups
/// that has the smallest of these scores.
Mask pattern_mask(const BlockPattern& pattern, std::span<const float> scores, int64_t columns, double sparsity);

}  // namespace nought
