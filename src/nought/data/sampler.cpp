#include "nought/data/sampler.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "nought/base/error.h"
#include "nought/tensor/random.h"

namespace nought {

namespace {

constexpr int kFeistelRounds = 8;
constexpr int32_t kIgnoredTarget = -100;

void check(const BatchLayout& layout) {
  require<ConfigError>(layout.micro_batch > 0 && layout.accumulation > 0 && layout.world_size > 0,
                       "micro_batch {}, accumulation {} and world_size {} must be positive", layout.micro_batch,
                       layout.accumulation, layout.world_size);
  require<ConfigError>(0 <= layout.rank && layout.rank < layout.world_size, "rank {} is not in [0, {})", layout.rank,
                       layout.world_size);
}

Batch empty_batch(const BatchLayout& layout, const TokenDataset& dataset, Memory& memory) {
  const Shape shape{layout.micro_batch, dataset.seq_length()};
  return {Tensor::empty(memory, shape, DType::i32, Category::workspace),
          Tensor::empty(memory, shape, DType::i32, Category::workspace)};
}

std::span<int32_t> row_of(const Tensor& tensor, int64_t row) { return tensor.slice(row, row + 1).span<int32_t>(); }

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

TrainSampler::TrainSampler(TokenDataset dataset, BatchLayout layout, uint64_t seed, bool shuffle)
    : dataset_(std::move(dataset)), layout_(layout), seed_(seed), shuffle_(shuffle) {
  check(layout);
  dataset_.require_batch(layout.train_batch());
}

int64_t TrainSampler::steps_for(double epochs) const {
  require<ConfigError>(std::isfinite(epochs) && epochs >= 0, "the number of epochs must be >= 0, got {}", epochs);
  const double samples = epochs * static_cast<double>(dataset_.num_samples());
  return static_cast<int64_t>(std::ceil(samples / static_cast<double>(layout_.train_batch())));
}

int64_t TrainSampler::sample_at(int64_t step, int64_t micro_step, int64_t row) const {
  require<Error>(
      step >= 0 && 0 <= micro_step && micro_step < layout_.accumulation && 0 <= row && row < layout_.micro_batch,
      "no row {} in micro-step {} of step {}", row, micro_step, step);
  const int64_t within = (micro_step * layout_.world_size + layout_.rank) * layout_.micro_batch + row;
  const int64_t position = step * layout_.train_batch() + within;
  const int64_t samples = dataset_.num_samples(), epoch = position / samples, index = position % samples;
  if (!shuffle_) return index;
  const uint64_t key = stable_hash("data order", seed_) ^ static_cast<uint64_t>(epoch) * 0x9E3779B97F4A7C15ull;
  return static_cast<int64_t>(Permutation(static_cast<uint64_t>(samples), key)(static_cast<uint64_t>(index)));
}

Batch TrainSampler::batch(int64_t step, int64_t micro_step, Memory& memory) const {
  const Batch batch = empty_batch(layout_, dataset_, memory);
  for (int64_t row = 0; row < layout_.micro_batch; ++row) {
    dataset_.sample(sample_at(step, micro_step, row), row_of(batch.input_ids, row), row_of(batch.targets, row));
  }
  return batch;
}

EvaluationSampler::EvaluationSampler(TokenDataset dataset, BatchLayout layout)
    : dataset_(std::move(dataset)), layout_(layout) {
  check(layout);
}

int64_t EvaluationSampler::num_batches() const {
  return ceil_div(dataset_.num_samples(), layout_.micro_batch * layout_.world_size);
}

Batch EvaluationSampler::batch(int64_t index, Memory& memory) const {
  require<Error>(0 <= index && index < num_batches(), "batch {} is not among the {} of the data", index, num_batches());
  const Batch batch = empty_batch(layout_, dataset_, memory);
  for (int64_t row = 0; row < layout_.micro_batch; ++row) {
    const int64_t sample = (index * layout_.world_size + layout_.rank) * layout_.micro_batch + row;
    const std::span<int32_t> inputs = row_of(batch.input_ids, row), targets = row_of(batch.targets, row);
    if (sample < dataset_.num_samples()) {
      dataset_.sample(sample, inputs, targets);
    } else {
      std::fill(inputs.begin(), inputs.end(), 0);
      std::fill(targets.begin(), targets.end(), kIgnoredTarget);
    }
  }
  return batch;
}

}  // namespace nought
