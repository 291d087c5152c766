#include "nought/data/sample_order.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "nought/base/error.h"
#include "nought/tensor/random.h"

namespace nought {

namespace {

constexpr int kFeistelRounds = 8;

/// The index-th of `size` things in the order of an epoch.
int64_t permuted(int64_t index, int64_t size, uint64_t key, int64_t epoch) {
  key ^= static_cast<uint64_t>(epoch) * 0x9E3779B97F4A7C15ull;
  return static_cast<int64_t>(Permutation(static_cast<uint64_t>(size), key)(static_cast<uint64_t>(index)));
}

/// `total` draws by weight, in whole numbers: the largest remainders are rounded up. A source without samples has none.
std::vector<int64_t> apportion(int64_t total, const std::vector<SourceShare>& shares) {
  std::vector<int64_t> draws;
  std::vector<std::pair<double, size_t>> remainders;
  int64_t left = total;
  for (const SourceShare& share : shares) {
    require<ConfigError>(share.num_samples > 0 || share.weight == 0,
                         "a source of data with weight {} has no whole sample: give it more tokens, or lower "
                         "seq_length or validation_fraction",
                         share.weight);
    const double exact = share.weight * static_cast<double>(total);
    draws.push_back(static_cast<int64_t>(std::floor(exact)));
    left -= draws.back();
    if (share.num_samples > 0) remainders.emplace_back(static_cast<double>(draws.back()) - exact, draws.size() - 1);
  }
  std::sort(remainders.begin(), remainders.end());
  for (size_t i = 0; left > 0; --left, ++i) ++draws[remainders[i % remainders.size()].second];
  return draws;
}

}  // namespace

Permutation::Permutation(uint64_t size, uint64_t key) : size_(size), key_(key) {
  require<Error>(size > 0 && size < uint64_t{1} << 62, "a permutation of {} things", size);
  while ((uint64_t{1} << (2 * half_bits_)) < size_) ++half_bits_;
}

uint64_t Permutation::encrypt(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_, right = value & mask;
  for (uint64_t round = 0; round < kFeistelRounds; ++round) {
    const uint64_t mixed = left ^ (philox(key_, right, round)[0] & mask);
    left = right, right = mixed;
  }
  return left << half_bits_ | right;
}

uint64_t Permutation::operator()(uint64_t index) const {
  require<Error>(index < size_, "index {} is not below {}", index, size_);
  do index = encrypt(index);
  while (index >= size_);  // ends: the walk's cycle holds the start, which is in range
  return index;
}

std::vector<SourceShare> normalized(std::vector<SourceShare> sources) {
  double sum = 0;
  int64_t samples = 0;
  for (const SourceShare& source : sources) sum += source.weight, samples += source.num_samples;
  for (SourceShare& source : sources) {
    const double by_size = static_cast<double>(source.num_samples) / static_cast<double>(std::max<int64_t>(samples, 1));
    source.weight = sum > 0 ? source.weight / sum : by_size;
  }
  return sources;
}

SampleOrder::SampleOrder(std::vector<SourceShare> sources, uint64_t seed, bool shuffle)
    : sources_(std::move(sources)), seed_(seed), shuffle_(shuffle) {
  for (const SourceShare& source : sources_) size_ += source.num_samples;
  draws_ = apportion(size_, sources_);
}

int64_t SampleOrder::operator()(int64_t position) const {
  const int64_t epoch = position / size_;
  int64_t index = position % size_;
  if (shuffle_) index = permuted(index, size_, stable_hash("data order", seed_), epoch);
  if (sources_.size() == 1) return index;
  size_t source = 0;
  int64_t first = 0;  // sample of the source in the dataset
  while (index >= draws_[source]) index -= draws_[source], first += sources_[source++].num_samples;
  const int64_t draw = epoch * draws_[source] + index, available = sources_[source].num_samples;
  int64_t within = draw % available;
  if (shuffle_) within = permuted(within, available, stable_hash("source order", seed_ + source), draw / available);
  return first + within;
}

std::vector<int64_t> SampleOrder::of_step(int64_t step, int64_t per_step) const {
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < per_step; ++i) samples.push_back((*this)(step * per_step + i));
  return samples;
}

int64_t steps_for_epochs(double epochs, int64_t samples, int64_t per_step) {
  require<ConfigError>(std::isfinite(epochs) && epochs >= 0, "the number of epochs must be >= 0, got {}", epochs);
  return static_cast<int64_t>(std::ceil(epochs * static_cast<double>(samples) / static_cast<double>(per_step)));
}

}  // namespace nought
