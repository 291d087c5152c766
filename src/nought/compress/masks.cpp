#include "nought/compress/masks.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <optional>

#include "nought/base/error.h"

namespace nought {

namespace {

/// The places of the `count` largest scores, in no order; of equal ones the first.
std::vector<size_t> largest(std::span<const float> scores, size_t count) {
  std::vector<size_t> places(scores.size());
  std::iota(places.begin(), places.end(), size_t{0});
  const auto before = [&](size_t a, size_t b) { return scores[a] > scores[b] || (scores[a] == scores[b] && a < b); };
  if (count < places.size())
    std::nth_element(places.begin(), places.begin() + static_cast<std::ptrdiff_t>(count), places.end(), before);
  places.resize(std::min(count, places.size()));
  return places;
}

std::optional<int64_t> number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > 1024) return std::nullopt;
  return value;
}

/// How many of so many blocks a sparsity prunes.
size_t pruned_blocks(size_t blocks, double share) {
  return std::min(blocks, static_cast<size_t>(std::llround(std::max(share, 0.0) * static_cast<double>(blocks))));
}

Mask block_mask(const BlockPattern& pattern, std::span<const float> scores, int64_t columns, double sparsity) {
  const auto width = static_cast<size_t>(columns), high = static_cast<size_t>(pattern.rows),
             wide = static_cast<size_t>(pattern.columns);
  const size_t across = width / wide, blocks = scores.size() / (high * wide);
  std::vector<float> means(blocks, 0.0f);
  const auto block_of = [&](size_t at) { return at / width / high * across + at % width / wide; };
  for (size_t at = 0; at < scores.size(); ++at) means[block_of(at)] += scores[at];
  Mask kept(blocks, 0), mask(scores.size());
  for (const size_t block : largest(means, blocks - pruned_blocks(blocks, sparsity))) kept[block] = 1;
  for (size_t at = 0; at < scores.size(); ++at) mask[at] = kept[block_of(at)];
  return mask;
}

Mask neighbour_mask(const BlockPattern& pattern, std::span<const float> scores, double sparsity) {
  const auto of = static_cast<size_t>(pattern.of), stay = of - static_cast<size_t>(pattern.pruned);
  const size_t groups = scores.size() / of;
  std::vector<float> lost(groups, 0.0f);
  std::vector<Mask> kept(groups, Mask(of, 0));
  for (size_t group = 0; group < groups; ++group) {
    const std::span<const float> these = scores.subspan(group * of, of);
    for (const size_t at : largest(these, stay)) kept[group][at] = 1;
    for (size_t at = 0; at < of; ++at)
      if (kept[group][at] == 0) lost[group] -= these[at];
  }
  Mask mask(scores.size(), 1);
  const double share = sparsity * static_cast<double>(pattern.of) / static_cast<double>(pattern.pruned);
  for (const size_t group : largest(lost, pruned_blocks(groups, share)))
    std::copy(kept[group].begin(), kept[group].end(), mask.begin() + static_cast<std::ptrdiff_t>(group * of));
  return mask;
}

}  // namespace

Mask keep_largest(std::span<const float> scores, double dense_ratio) {
  Mask mask(scores.size(), 0);
  const double count = std::ceil(dense_ratio * static_cast<double>(scores.size()));
  for (const size_t place : largest(scores, static_cast<size_t>(std::max(count, 0.0)))) mask[place] = 1;
  return mask;
}

Mask l1_mask(std::span<const float> weight, double dense_ratio) {
  std::vector<float> magnitudes(weight.size());
  std::transform(weight.begin(), weight.end(), magnitudes.begin(), [](float value) { return std::abs(value); });
  return keep_largest(magnitudes, dense_ratio);
}

Mask l1_rows(std::span<const float> weight, int64_t rows, double dense_ratio) {
  const auto count = static_cast<size_t>(rows);
  require(rows > 0 && weight.size() % count == 0, "{} weights are no {} rows", weight.size(), rows);
  const size_t width = weight.size() / count;
  std::vector<float> norms(count, 0.0f);
  for (size_t at = 0; at < weight.size(); ++at) norms[at / width] += std::abs(weight[at]);
  return keep_largest(norms, dense_ratio);
}

BlockPattern block_pattern(std::string_view text, const std::string& place) {
  const size_t cut = text.find_first_of("x:");
  std::optional<int64_t> first, second;
  if (cut != std::string_view::npos) first = number(text.substr(0, cut)), second = number(text.substr(cut + 1));
  require<ConfigError>(first && second, "{}: expected blocks such as \"4x1\" or neighbours such as \"2:4\", got \"{}\"",
                       place, text);
  if (text[cut] == 'x') return {.rows = *first, .columns = *second};
  require<ConfigError>(*first < *second,
                       "{} = \"{}\" prunes all of its neighbours: the first number is the smaller one", place, text);
  return {.pruned = *first, .of = *second};
}

void require_divides(const BlockPattern& pattern, std::string_view name, int64_t rows, int64_t columns) {
  if (pattern.among_neighbours()) {
    require<ConfigError>(columns % pattern.of == 0,
                         "{}: rows of {} weights have no whole groups of {} neighbours (block_pattern {}:{})", name,
                         columns, pattern.of, pattern.pruned, pattern.of);
  } else {
    require<ConfigError>(rows % pattern.rows == 0 && columns % pattern.columns == 0,
                         "{}: a matrix of {} rows and {} columns has no whole blocks of {}x{} (block_pattern)", name,
                         rows, columns, pattern.rows, pattern.columns);
  }
}

Mask pattern_mask(const BlockPattern& pattern, std::span<const float> scores, int64_t columns, double sparsity) {
  require(columns > 0 && std::ssize(scores) % columns == 0, "{} scores are no rows of {}", scores.size(), columns);
  require_divides(pattern, "scores", std::ssize(scores) / columns, columns);
  return pattern.among_neighbours() ? neighbour_mask(pattern, scores, sparsity)
                                    : block_mask(pattern, scores, columns, sparsity);
}

}  // namespace nought
