#include "nought/data/sampler.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "nought/base/error.h"
#include "nought/tensor/random.h"

namespace nought {

namespace {

constexpr int kFeistelRounds = 8;

void check(const BatchLayout& layout) {
  require<ConfigError>(layout.micro_batch > 0 && layout.accumulation > 0 && layout.world_size > 0,
                       "micro_batch {}, accumulation {} and world_size {} must be positive", layout.micro_batch,
                       layout.accumulation, layout.world_size);
  require<ConfigError>(0 <= layout.rank && layout.rank < layout.world_size, "rank {} is not in [0, {})", layout.rank,
                       layout.world_size);
  require<ConfigError>(layout.together >= 0 && (layout.together == 0 || layout.world_size % layout.together == 0),
                       "{} neighbours do not divide {} ranks", layout.together, layout.world_size);
}

std::span<int32_t> row_of(const Tensor& tensor, int64_t row) { return tensor.slice(row, row + 1).span<int32_t>(); }

/// The index-th of `size` things in the order of an epoch.
int64_t permuted(int64_t index, int64_t size, uint64_t key, int64_t epoch) {
  key ^= static_cast<uint64_t>(epoch) * 0x9E3779B97F4A7C15ull;
  return static_cast<int64_t>(Permutation(static_cast<uint64_t>(size), key)(static_cast<uint64_t>(index)));
}

/// `total` draws by weight, in whole numbers: the largest remainders are rounded up. A source without samples has none.
std::vector<int64_t> apportion(int64_t total, const std::vector<TokenDataset::Share>& shares) {
  std::vector<int64_t> draws;
  std::vector<std::pair<double, size_t>> remainders;
  int64_t left = total;
  for (const TokenDataset::Share& share : shares) {
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

Batch empty_batch(int64_t micro_batch, int64_t seq_length, Memory& memory) {
  const Shape shape{micro_batch, seq_length};
  return {Tensor::empty(memory, shape, DType::i32, Category::workspace, memory.host_pool()),
          Tensor::empty(memory, shape, DType::i32, Category::workspace, memory.host_pool()),
          {},
          {},
          false,
          std::vector<uint64_t>(static_cast<size_t>(micro_batch))};
}

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

TrainSampler::TrainSampler(TokenDataset dataset, BatchLayout layout, uint64_t seed, bool shuffle)
    : dataset_(std::move(dataset)), layout_(layout), seed_(seed), shuffle_(shuffle) {
  check(layout);
  dataset_.require_batch(layout.train_batch());
  shares_ = dataset_.shares();
  draws_ = apportion(dataset_.num_samples(), shares_);
}

int64_t TrainSampler::steps_for(double epochs) const {
  require<ConfigError>(std::isfinite(epochs) && epochs >= 0, "the number of epochs must be >= 0, got {}", epochs);
  const double samples = epochs * static_cast<double>(dataset_.num_samples());
  return static_cast<int64_t>(std::ceil(samples / static_cast<double>(layout_.train_batch())));
}

int64_t TrainSampler::position_of(int64_t step, int64_t micro_step, int64_t row) const {
  require<Error>(
      step >= 0 && 0 <= micro_step && micro_step < layout_.accumulation && 0 <= row && row < layout_.micro_batch,
      "no row {} in micro-step {} of step {}", row, micro_step, step);
  const int64_t within = layout_.part(micro_step) * layout_.micro_batch + row;
  return step * layout_.train_batch() + within;
}

int64_t TrainSampler::sample_at(int64_t step, int64_t micro_step, int64_t row) const {
  return sample_of(position_of(step, micro_step, row));
}

int64_t TrainSampler::sample_of(int64_t position) const {
  const int64_t samples = dataset_.num_samples(), epoch = position / samples;
  int64_t index = position % samples;
  if (shuffle_) index = permuted(index, samples, stable_hash("data order", seed_), epoch);
  if (shares_.size() == 1) return index;
  size_t source = 0;
  int64_t first = 0;  // sample of the source in the dataset
  while (index >= draws_[source]) index -= draws_[source], first += shares_[source++].num_samples;
  const int64_t draw = epoch * draws_[source] + index, available = shares_[source].num_samples;
  int64_t within = draw % available;
  if (shuffle_) within = permuted(within, available, stable_hash("source order", seed_ + source), draw / available);
  return first + within;
}

int64_t TrainSampler::targets_in_step(int64_t step) const {
  if (dataset_.all_targets_count()) return targets_per_step();
  int64_t count = 0;
  for (int64_t i = 0; i < layout_.train_batch(); ++i)
    count += dataset_.num_targets(sample_of(step * layout_.train_batch() + i));
  return std::max<int64_t>(count, 1);
}

int64_t TrainSampler::targets_in_step(int64_t step, int first, int ranks) const {
  if (dataset_.all_targets_count()) return layout_.micro_batch * layout_.accumulation * ranks * dataset_.seq_length();
  int64_t count = 0;
  for (int64_t micro = 0; micro < layout_.accumulation; ++micro) {
    const int64_t begin = step * layout_.train_batch() + (micro * layout_.world_size + first) * layout_.micro_batch;
    for (int64_t i = 0; i < ranks * layout_.micro_batch; ++i) count += dataset_.num_targets(sample_of(begin + i));
  }
  return std::max<int64_t>(count, 1);
}

Batch TrainSampler::batch(int64_t step, int64_t micro_step, Memory& memory) const {
  Batch batch = empty_batch(layout_.micro_batch, dataset_.seq_length(), memory);
  for (int64_t row = 0; row < layout_.micro_batch; ++row) {
    const int64_t position = position_of(step, micro_step, row), sample = sample_of(position);
    const Philox key = philox(stable_hash("row", seed_), static_cast<uint64_t>(position));
    batch.row_keys[static_cast<size_t>(row)] = uint64_t{key[0]} << 32 | key[1];
    dataset_.sample(sample, row_of(batch.input_ids, row), row_of(batch.targets, row));
    if (dataset_.separates_documents()) batch.document_starts.push_back(dataset_.document_starts(sample));
  }
  return batch;
}

EvaluationSampler::EvaluationSampler(TokenDataset dataset, BatchLayout layout)
    : dataset_(dataset.with_remainder()), layout_(layout) {
  check(layout);
}

int64_t EvaluationSampler::num_batches() const {
  return ceil_div(dataset_.num_samples(), layout_.micro_batch * layout_.world_size);
}

int64_t EvaluationSampler::num_targets() const {
  if (dataset_.all_targets_count()) return dataset_.num_samples() * dataset_.seq_length();
  int64_t count = 0;
  for (int64_t i = 0; i < dataset_.num_samples(); ++i) count += dataset_.num_targets(i);
  return std::max<int64_t>(count, 1);
}

Batch EvaluationSampler::batch(int64_t index, Memory& memory) const {
  require<Error>(0 <= index && index < num_batches(), "batch {} is not among the {} of the data", index, num_batches());
  Batch batch = empty_batch(layout_.micro_batch, dataset_.seq_length(), memory);
  batch.placeholder = true, batch.row_keys.clear();
  for (int64_t row = 0; row < layout_.micro_batch; ++row) {
    const int64_t sample = (index * layout_.world_size + layout_.rank) * layout_.micro_batch + row;
    const std::span<int32_t> inputs = row_of(batch.input_ids, row), targets = row_of(batch.targets, row);
    const bool is_sample = sample < dataset_.num_samples();
    if (dataset_.separates_documents())
      batch.document_starts.push_back(is_sample ? dataset_.document_starts(sample) : std::vector<int32_t>{0});
    if (is_sample) {
      batch.placeholder = false;
      dataset_.sample(sample, inputs, targets);
    } else {
      std::fill(inputs.begin(), inputs.end(), 0);
      std::fill(targets.begin(), targets.end(), kIgnoredTarget);
    }
  }
  return batch;
}

}  // namespace nought
