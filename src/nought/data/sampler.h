// TrainSampler: chooses the samples of each batch as a function of (seed, step, micro-step, rank). So a resumed run
// needs to know its step only.
//
// Training draws the samples of epoch e in the order of a permutation that is made from (seed, e). Epoch follows epoch
// without a gap: a batch may hold the last samples of one epoch and the first of the next. Position p of this endless
// order belongs to step p / train_batch. Within a step, consecutive positions go to the first micro-step, then to the
// second, and so on; within a micro-step, to the first rank, then to the second, and so on (BatchLayout::part). So a
// step sees the same samples in the same order under every layout with the same train_batch.
//
// With several weighted sources, an epoch has as many samples as all sources hold together, and draws from each source
// its share of them. The samples of a source come in the order of a permutation of its own, all of them before one
// comes again. So a source with a large weight is seen several times in an epoch, and one with a small weight is not
// seen whole.
#pragma once

#include <cstdint>
#include <vector>

#include "nought/data/dataset.h"
#include "nought/tensor/tensor.h"

namespace nought {

/// A permutation of [0, size) without a table: a Feistel network over the next power of four. It is applied again while
/// the result lies outside of the range (cycle walking).
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

/// How the batch of a step is spread over ranks and forward passes.
struct BatchLayout {
  int64_t micro_batch = 1;   // sequences per rank and forward pass
  int64_t accumulation = 1;  // forward passes per step
  int world_size = 1;
  int rank = 0;
  /// Neighbours that read neighbouring parts of a step in each micro-step; they divide the ranks. 0: all of them. 1:
  /// each rank reads the parts of all its micro-steps in a row.
  int together = 0;

  /// Which of a step's world_size * accumulation parts this rank reads in a micro-step.
  int64_t part(int64_t micro_step) const {
    const int64_t neighbours = together == 0 ? world_size : together;
    return (rank / neighbours * accumulation + micro_step) * neighbours + rank % neighbours;
  }
  int64_t train_batch() const { return micro_batch * accumulation * world_size; }
};

/// A batch of [micro_batch, seq_length] to train on, with undefined contents.
Batch empty_batch(int64_t micro_batch, int64_t seq_length, Memory& memory);

class TrainSampler {
 public:
  /// shuffle = false: samples come in their own order. ConfigError if the data has fewer samples than one step takes.
  TrainSampler(TokenDataset dataset, BatchLayout layout, uint64_t seed, bool shuffle = true);

  /// The number of steps that see all samples `epochs` times. The last step may begin another epoch.
  int64_t steps_for(double epochs) const;
  /// The sample in row `row` of a micro-batch of this rank.
  int64_t sample_at(int64_t step, int64_t micro_step, int64_t row) const;
  /// The batch of a micro-step for this rank.
  Batch batch(int64_t step, int64_t micro_step, Memory& memory) const;
  /// The number of targets of a step over all ranks, ignored ones included.
  int64_t targets_per_step() const { return layout_.train_batch() * dataset_.seq_length(); }
  /// The number of targets of a step that are not ignored, at least 1. The loss of the step is the mean over them.
  int64_t targets_in_step(int64_t step) const;
  /// The number for `ranks` ranks from `first` on.
  int64_t targets_in_step(int64_t step, int first, int ranks) const;
  const TokenDataset& dataset() const { return dataset_; }

 private:
  /// Where a row stands in the endless order.
  int64_t position_of(int64_t step, int64_t micro_step, int64_t row) const;
  /// The sample at a position of that order.
  int64_t sample_of(int64_t position) const;

  TokenDataset dataset_;
  BatchLayout layout_;
  uint64_t seed_;
  bool shuffle_;
  std::vector<TokenDataset::Share> shares_;
  std::vector<int64_t> draws_;  // samples that an epoch draws from each source
};

/// Gives every sample once, in order, with the remainders of sources, so that every target counts once. All ranks have
/// the same number of batches. Rows beyond the data have ignored targets.
class EvaluationSampler {
 public:
  /// layout.accumulation is not used.
  EvaluationSampler(TokenDataset dataset, BatchLayout layout);

  int64_t num_batches() const;
  Batch batch(int64_t index, Memory& memory) const;
  /// The number of targets that are not ignored, over all batches and ranks.
  int64_t num_targets() const;
  const TokenDataset& dataset() const { return dataset_; }

 private:
  TokenDataset dataset_;
  BatchLayout layout_;
};

}  // namespace nought
