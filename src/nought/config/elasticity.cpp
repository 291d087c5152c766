#include "nought/config/elasticity.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>

#include <fmt/ranges.h>

#include "nought/base/error.h"

namespace nought {

namespace {

constexpr int64_t kLargestBatch = 1'000'000'000;

/// Highly composite numbers, by which DeepSpeed multiplies: a batch of them has many divisors.
constexpr std::array<int64_t, 38> kHighlyComposite{
    1,     2,     4,     6,      12,     24,     36,     48,     60,     120,    180,    240,   360,
    720,   840,   1260,  1680,   2520,   5040,   7560,   10080,  15120,  20160,  25200,  27720, 45360,
    50400, 55440, 83160, 110880, 166320, 221760, 277200, 332640, 498960, 554400, 665280, 720720};

/// What the search of version 0.1 takes. Version 0.2 searches nodes with it.
struct Search {
  std::vector<int64_t> micro_batches;
  int64_t most_sequences = 0, fewest_ranks = 1, most_ranks = 0;
  bool prefer_larger = true;
};

/// The largest of DeepSpeed's multiples of `base` up to `most`.
int64_t largest_multiple(int64_t base, int64_t most) {
  if (base == most) return base;
  // Above the list's last number numpy's argmax finds nothing and is 0, whose predecessor is the last one.
  const auto above = std::upper_bound(kHighlyComposite.begin(), kHighlyComposite.end(), most / base);
  return base * *std::prev(above);
}

std::set<int64_t> candidates(const Search& search) {
  std::vector<int64_t> bases = search.micro_batches;
  int64_t multiple = 1;
  for (const int64_t micro : search.micro_batches)
    if (multiple <= search.most_sequences) multiple = std::lcm(multiple, micro);
  bases.push_back(multiple);
  std::set<int64_t> found;
  for (const int64_t base : bases)
    if (base <= search.most_sequences) found.insert(largest_multiple(base, search.most_sequences));
  return found;
}

std::vector<int64_t> ranks_that_make(int64_t batch, const Search& search) {
  std::set<int64_t> found;
  for (const int64_t micro : search.micro_batches) {
    if (batch % micro != 0) continue;
    const int64_t parts = batch / micro;
    const auto take = [&](int64_t ranks) {
      if (search.fewest_ranks <= ranks && ranks <= search.most_ranks) found.insert(ranks);
    };
    for (int64_t ranks = 1; ranks * ranks <= parts; ++ranks)
      if (parts % ranks == 0) take(ranks), take(parts / ranks);
  }
  return {found.begin(), found.end()};
}

/// The candidate that the most numbers of ranks can make; without any, one with no numbers.
ElasticBatch best_of(const Search& search) {
  ElasticBatch best;
  for (const int64_t batch : candidates(search)) {  // in ascending order
    std::vector<int64_t> ranks = ranks_that_make(batch, search);
    const size_t before = best.data_ranks.size();
    if (ranks.size() > before || (ranks.size() == before && before > 0 && search.prefer_larger))
      best = {.train_batch = batch, .data_ranks = std::move(ranks), .micro_batch_sizes = search.micro_batches};
  }
  return best;
}

/// How the section's numbers become those of the search: version 0.2 counts nodes.
struct Unit {
  int64_t gpus = 1;        // ranks of a node; 1: ranks are counted
  int64_t data_ranks = 1;  // the ranks that read different samples
};

Unit unit_of(const DsElasticity& section) {
  if (section.version.value < 0.2) return {};
  const int64_t node = section.num_gpus_per_node.value;
  return {node, node / section.model_parallel_size.value};
}

Search search_of(const DsElasticity& section) {
  const Unit unit = unit_of(section);
  Search search{.micro_batches = section.micro_batch_sizes.value,
                .most_sequences = section.max_train_batch_size.value / unit.data_ranks,
                .fewest_ranks = std::max<int64_t>(1, section.min_gpus.value / unit.gpus),
                .most_ranks = section.max_gpus.value / unit.gpus,
                .prefer_larger = section.prefer_larger_batch.value};
  const int64_t least = *std::min_element(search.micro_batches.begin(), search.micro_batches.end());
  // Less than one node is no bound in DeepSpeed.
  if (search.most_ranks == 0) search.most_ranks = search.most_sequences / least;
  return search;
}

ElasticBatch in_ranks(ElasticBatch batch, const Unit& unit) {
  batch.train_batch *= unit.data_ranks;
  for (int64_t& ranks : batch.data_ranks) ranks *= unit.data_ranks;
  return batch;
}

void require_bounds(const DsElasticity& s, const std::string& place) {
  const auto at_least = [&](const char* key, int64_t value, int64_t least) {
    require<ConfigError>(value >= least, "{}.{}: expected at least {}, got {}", place, key, least, value);
  };
  at_least("max_train_batch_size", s.max_train_batch_size.value, 1);
  require<ConfigError>(s.max_train_batch_size.value <= kLargestBatch,
                       "{}.max_train_batch_size: expected at most {}, got {}", place, kLargestBatch,
                       s.max_train_batch_size.value);
  at_least("min_gpus", s.min_gpus.value, 1);
  at_least("max_gpus", s.max_gpus.value, 1);
  at_least("num_gpus_per_node", s.num_gpus_per_node.value, 1);
  at_least("model_parallel_size", s.model_parallel_size.value, 1);
  require<ConfigError>(s.min_gpus.value <= s.max_gpus.value, "{}: min_gpus {} is above max_gpus {}", place,
                       s.min_gpus.value, s.max_gpus.value);
  require<ConfigError>(std::isfinite(s.min_time.value) && s.min_time.value >= 0,
                       "{}.min_time: expected a finite number >= 0, got {}", place, s.min_time.value);
}

void require_version(const DsElasticity& s, const std::string& place) {
  const double version = s.version.value;
  require<ConfigError>(version == 0.1 || version == 0.2, "{}.version: expected 0.1 or 0.2, got {}", place, version);
  require<ConfigError>(version == 0.2 || s.model_parallel_size.value == 1,
                       "{}: version 0.1 knows no model_parallel_size {}; write version 0.2", place,
                       s.model_parallel_size.value);
  require<ConfigError>(version == 0.1 || s.num_gpus_per_node.value % s.model_parallel_size.value == 0,
                       "{}: model_parallel_size {} does not divide num_gpus_per_node {}; {} would", place,
                       s.model_parallel_size.value, s.num_gpus_per_node.value,
                       std::gcd(s.model_parallel_size.value, s.num_gpus_per_node.value));
}

void require_valid(const DsElasticity& s, const std::string& place) {
  require<ConfigError>(s.max_train_batch_size.given, "{}: max_train_batch_size is missing", place);
  require<ConfigError>(s.micro_batch_sizes.given && !s.micro_batch_sizes.value.empty(),
                       "{}: micro_batch_sizes is missing: expected a list of numbers", place);
  require_bounds(s, place);
  require_version(s, place);
  const int64_t most = s.max_train_batch_size.value / unit_of(s).data_ranks;
  for (const int64_t micro : s.micro_batch_sizes.value)
    require<ConfigError>(1 <= micro && micro <= most, "{}.micro_batch_sizes: expected numbers from 1 to {}, got {}",
                         place, most, micro);
}

/// The number of ranks outside of the bounds that is nearest to them.
[[noreturn]] void fail_without_ranks(const DsElasticity& section, const std::string& place, Search search) {
  const Search bounded = search;
  search.fewest_ranks = 1, search.most_ranks = search.most_sequences;
  const ElasticBatch free = in_ranks(best_of(search), unit_of(section));
  const auto distance = [&](int64_t ranks) {
    const Unit unit = unit_of(section);
    const int64_t low = bounded.fewest_ranks * unit.data_ranks, high = bounded.most_ranks * unit.data_ranks;
    return ranks < low ? low - ranks : ranks - high;
  };
  const auto nearest = std::min_element(free.data_ranks.begin(), free.data_ranks.end(),
                                        [&](int64_t left, int64_t right) { return distance(left) < distance(right); });
  fail<ConfigError>(
      "{}: no number of ranks from min_gpus {} to max_gpus {} makes a batch of up to {} with micro-batches of {}; the "
      "nearest number that makes one is {}, a batch of {}",
      place, section.min_gpus.value, section.max_gpus.value, section.max_train_batch_size.value,
      fmt::join(section.micro_batch_sizes.value, ", "), *nearest, free.train_batch);
}

/// What version 0.2 makes of ranks that are none of its numbers.
ElasticBatch batch_of_these(const DsElasticity& section, int64_t ranks) {
  const int64_t most = section.max_train_batch_size.value;
  ElasticBatch result{.data_ranks = {ranks}, .micro_batch_sizes = section.micro_batch_sizes.value};
  for (const int64_t micro : section.micro_batch_sizes.value) {
    const int64_t batch = most / (micro * ranks) * (micro * ranks);
    const bool better = section.prefer_larger_batch.value ? batch > result.train_batch : batch < result.train_batch;
    if (batch > 0 && (result.train_batch == 0 || better)) result.train_batch = batch;
  }
  return result;
}

}  // namespace

bool ElasticBatch::allows(int64_t ranks) const {
  return std::binary_search(data_ranks.begin(), data_ranks.end(), ranks);
}

int64_t ElasticBatch::micro_batch(int64_t ranks) const {
  int64_t largest = 0;
  for (const int64_t micro : micro_batch_sizes)
    if (train_batch % (ranks * micro) == 0) largest = std::max(largest, micro);
  return largest;
}

std::string ElasticBatch::nearest(int64_t ranks) const {
  const auto above = std::upper_bound(data_ranks.begin(), data_ranks.end(), ranks);
  if (above == data_ranks.begin()) return fmt::format("{}", data_ranks.front());
  if (above == data_ranks.end()) return fmt::format("{}", data_ranks.back());
  return fmt::format("{} and {}", *std::prev(above), *above);
}

ElasticBatch elastic_batch(const DsElasticity& section, const std::string& place) {
  require_valid(section, place);
  const Search search = search_of(section);
  ElasticBatch batch = best_of(search);
  if (batch.data_ranks.empty()) fail_without_ranks(section, place, search);
  return in_ranks(std::move(batch), unit_of(section));
}

ElasticBatch elastic_batch_of(const DsElasticity& section, const std::string& place, int64_t data_ranks) {
  ElasticBatch batch = elastic_batch(section, place);
  if (batch.allows(data_ranks)) return batch;
  ElasticBatch other;
  if (section.version.value == 0.2) other = batch_of_these(section, data_ranks);
  require<ConfigError>(other.train_batch > 0,
                       "{}: {} data-parallel ranks do not make the batch of {}; the nearest that do: {} (`nought plan "
                       "--elastic` lists all)",
                       place, data_ranks, batch.train_batch, batch.nearest(data_ranks));
  return other;
}

}  // namespace nought
