#include "nought/data/sampler.h"

#include <algorithm>
#include <utility>

#include "nought/base/error.h"
#include "nought/tensor/random.h"

namespace nought {

namespace {

void check(const BatchLayout& layout) {
  require<ConfigError>(layout.micro_batch > 0 && layout.accumulation > 0 && layout.world_size > 0,
                       "micro_batch {}, accumulation {} and world_size {} must be positive", layout.micro_batch,
                       layout.accumulation, layout.world_size);
  require<ConfigError>(0 <= layout.rank && layout.rank < layout.world_size, "rank {} is not in [0, {})", layout.rank,
                       layout.world_size);
  require<ConfigError>(layout.together >= 0 && (layout.together == 0 || layout.world_size % layout.together == 0),
                       "{} neighbours do not divide {} ranks", layout.together, layout.world_size);
}

std::vector<SourceShare> shares_of(const TokenDataset& dataset, const BatchLayout& layout) {
  check(layout);
  dataset.require_batch(layout.train_batch());
  return dataset.shares();
}

std::span<int32_t> row_of(const Tensor& tensor, int64_t row) { return tensor.slice(row, row + 1).span<int32_t>(); }

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

TrainSampler::TrainSampler(TokenDataset dataset, BatchLayout layout, uint64_t seed, bool shuffle)
    : dataset_(std::move(dataset)), layout_(layout), seed_(seed), order_(shares_of(dataset_, layout), seed, shuffle) {}

int64_t TrainSampler::steps_for(double epochs) const {
  return steps_for_epochs(epochs, dataset_.num_samples(), layout_.train_batch());
}

int64_t TrainSampler::position_of(int64_t step, int64_t micro_step, int64_t row) const {
  require<Error>(
      step >= 0 && 0 <= micro_step && micro_step < layout_.accumulation && 0 <= row && row < layout_.micro_batch,
      "no row {} in micro-step {} of step {}", row, micro_step, step);
  const int64_t within = layout_.part(micro_step) * layout_.micro_batch + row;
  return step * layout_.train_batch() + within;
}

int64_t TrainSampler::sample_at(int64_t step, int64_t micro_step, int64_t row) const {
  return order_(position_of(step, micro_step, row));
}

int64_t TrainSampler::targets_in_step(int64_t step) const {
  if (dataset_.all_targets_count()) return targets_per_step();
  int64_t count = 0;
  for (int64_t i = 0; i < layout_.train_batch(); ++i)
    count += dataset_.num_targets(order_(step * layout_.train_batch() + i));
  return std::max<int64_t>(count, 1);
}

int64_t TrainSampler::targets_in_step(int64_t step, int first, int ranks) const {
  if (dataset_.all_targets_count()) return layout_.micro_batch * layout_.accumulation * ranks * dataset_.seq_length();
  int64_t count = 0;
  for (int64_t micro = 0; micro < layout_.accumulation; ++micro) {
    const int64_t begin = step * layout_.train_batch() + (micro * layout_.world_size + first) * layout_.micro_batch;
    for (int64_t i = 0; i < ranks * layout_.micro_batch; ++i) count += dataset_.num_targets(order_(begin + i));
  }
  return std::max<int64_t>(count, 1);
}

std::vector<Batch> TrainSampler::batches(int64_t step, Memory& memory) const {
  std::vector<Batch> batches;
  for (int64_t i = 0; i < layout_.accumulation; ++i) batches.push_back(batch(step, i, memory));
  return batches;
}

Batch TrainSampler::batch(int64_t step, int64_t micro_step, Memory& memory) const {
  Batch batch = empty_batch(layout_.micro_batch, dataset_.seq_length(), memory);
  for (int64_t row = 0; row < layout_.micro_batch; ++row) {
    const int64_t position = position_of(step, micro_step, row), sample = order_(position);
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
