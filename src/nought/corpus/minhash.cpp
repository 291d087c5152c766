#include "nought/corpus/minhash.h"

#include <algorithm>
#include <limits>

#include <xxhash.h>

#include "nought/base/error.h"
#include "nought/corpus/characters.h"
#include "nought/corpus/simplify.h"

namespace nought {

MinHash::MinHash(const MinHashOptions& options) : options_(options) {
  require<ConfigError>(options.ngram >= 1 && options.bands >= 1 && options.rows >= 1,
                       "--ngram {}, --bands {} and --rows {} must be positive", options.ngram, options.bands,
                       options.rows);
  require<ConfigError>(options.bands * options.rows <= 4096, "--bands {} times --rows {}: at most 4096 minima",
                       options.bands, options.rows);
  require<ConfigError>(options.bits == 32 || options.bits == 64, "--bits {}: expected 32 or 64", options.bits);
  require<ConfigError>(options.similarity >= 0 && options.similarity <= 1, "--similarity {}: expected 0 to 1",
                       options.similarity);
  const auto count = static_cast<uint64_t>(options.bands * options.rows);
  for (uint64_t i = 0; i < count; ++i) {
    multipliers_.push_back(XXH3_64bits_withSeed(&i, sizeof(i), 1) | 1U);
    offsets_.push_back(XXH3_64bits_withSeed(&i, sizeof(i), 2));
  }
}

std::vector<uint64_t> MinHash::signature(std::string_view text) const {
  const std::string simple = simplify(text);
  std::vector<std::string_view> words;
  split_at_spaces(simple, words);
  if (words.empty()) return {};
  const size_t n = std::min(static_cast<size_t>(options_.ngram), words.size()), count = size();
  std::vector<uint64_t> minima(count, std::numeric_limits<uint64_t>::max());
  for (size_t i = 0; i + n <= words.size(); ++i) {
    const char* begin = words[i].data();
    const char* end = words[i + n - 1].data() + words[i + n - 1].size();
    const uint64_t hash = XXH3_64bits(begin, static_cast<size_t>(end - begin));
    for (size_t k = 0; k < count; ++k) minima[k] = std::min(minima[k], hash * multipliers_[k] + offsets_[k]);
  }
  // The high bits decide which is least, so 32 of them are minima, too.
  if (options_.bits == 32)
    for (uint64_t& minimum : minima) minimum >>= 32U;
  return minima;
}

uint64_t MinHash::band_key(std::span<const uint64_t> signature, size_t band) const {
  const auto rows = static_cast<size_t>(options_.rows);
  return XXH3_64bits_withSeed(&signature[band * rows], rows * sizeof(uint64_t), band);
}

}  // namespace nought
