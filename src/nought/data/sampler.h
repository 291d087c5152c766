// Which sample goes where: a function of (seed, step, micro-step, rank), so that a run resumes from its step alone.
//
// Training draws the samples of epoch e in the order of a permutation made from (seed, e), epoch after epoch, without
// a gap: a batch may hold the last samples of one epoch and the first of the next. Position p of that endless order
// belongs to step p / train_batch; within a step, micro-steps take consecutive blocks, within a micro-step ranks do.
// So a step sees the same samples in the same order under every layout of the same train_batch.
//
// Of several sources with weights, an epoch draws from each its share of as many samples as all of them hold. A source
// gives its own samples in the order of a permutation of its own, all of them before any comes again, so one with a
// large weight is seen several times in an epoch, and one with a small weight is not seen whole.
#pragma once

#include <cstdint>
#include <vector>

#include "nought/data/dataset.h"
#include "nought/tensor/tensor.h"

namespace nought {

/// A permutation of [0, size) that needs no table: a Feistel network over the next power of four, applied again while
/// it leaves the range (cycle walking).
class Permutation {
 public:
  Permutation(uint64_t size, uint64_t key);
  /// Where `index` goes; index < size.
  uint64_t operator()(uint64_t index) const;

 private:
  uint64_t encrypt(uint64_t value) const;

  uint64_t size_, key_;
  int half_bits_ = 4;
};

/// How a batch is spread: `micro_batch` sequences per rank and forward, `accumulation` forwards per step.
struct BatchLayout {
  int64_t micro_batch = 1;
  int64_t accumulation = 1;
  int world_size = 1;
  int rank = 0;

  int64_t train_batch() const { return micro_batch * accumulation * world_size; }
};

/// A batch with undefined contents: [micro_batch, seq_length].
Batch empty_batch(int64_t micro_batch, int64_t seq_length, Memory& memory);

class TrainSampler {
 public:
  /// ConfigError if the data has fewer samples than one step takes. With shuffle false, samples come in their order.
  TrainSampler(TokenDataset dataset, BatchLayout layout, uint64_t seed, bool shuffle = true);

  /// Steps that it takes to see all samples `epochs` times; the last one may begin another epoch.
  int64_t steps_for(double epochs) const;
  /// The sample in row `row` of a micro-batch of this rank.
  int64_t sample_at(int64_t step, int64_t micro_step, int64_t row) const;
  Batch batch(int64_t step, int64_t micro_step, Memory& memory) const;
  /// Targets of a whole step over all ranks, ignored ones among them.
  int64_t targets_per_step() const { return layout_.train_batch() * dataset_.seq_length(); }
  /// Those of them that are not ignored, at least 1: what a step's loss is the mean over.
  int64_t targets_in_step(int64_t step) const;
  const TokenDataset& dataset() const { return dataset_; }

 private:
  /// The sample at a position of the endless order.
  int64_t sample_of(int64_t position) const;

  TokenDataset dataset_;
  BatchLayout layout_;
  uint64_t seed_;
  bool shuffle_;
  std::vector<TokenDataset::Share> shares_;
  std::vector<int64_t> draws_;  // from each source in an epoch
};

/// Every sample once, in order, the remainders of sources too, so that every target counts once. All ranks have the
/// same number of batches; rows beyond the data have ignored targets.
class EvaluationSampler {
 public:
  /// accumulation is not used.
  EvaluationSampler(TokenDataset dataset, BatchLayout layout);

  int64_t num_batches() const;
  Batch batch(int64_t index, Memory& memory) const;
  /// Targets that are not ignored, of all batches over all ranks.
  int64_t num_targets() const;
  const TokenDataset& dataset() const { return dataset_; }

 private:
  TokenDataset dataset_;
  BatchLayout layout_;
};

}  // namespace nought
