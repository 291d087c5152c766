// MinHash: short signatures of texts that agree where the texts have word n-grams in common.
//
// Two texts with the Jaccard index J agree in a minimum with probability J, and share a band of r rows among b bands
// with probability 1 - (1 - J^r)^b. FineWeb has n-grams of 5 words, 14 bands and 8 rows: 0.92 at J = 0.8, half at 0.72.
// Sources: Broder 1997; 2406.17557, 3.4; datatrove's dedup/minhash.py.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace nought {

struct MinHashOptions {
  int64_t ngram = 5, bands = 14, rows = 8;
  int64_t bits = 64;        // a minimum has 32 or 64
  double similarity = 0.8;  // least estimate of J for a pair that shares a band; 0: sharing a band is enough
};

class MinHash {
 public:
  /// ConfigError for numbers that cannot be.
  explicit MinHash(const MinHashOptions& options);
  size_t size() const { return multipliers_.size(); }
  /// The minima of a text, valid UTF-8: bands * rows of them. Empty if the text has no word. A text of fewer words than
  /// an n-gram has is one n-gram.
  std::vector<uint64_t> signature(std::string_view text) const;
  /// The key of a band: texts that agree in its rows have the same.
  uint64_t band_key(std::span<const uint64_t> signature, size_t band) const;

 private:
  MinHashOptions options_;
  std::vector<uint64_t> multipliers_, offsets_;
};

}  // namespace nought
