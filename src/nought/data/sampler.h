// TrainSampler: chooses the samples of each batch as a function of (seed, step, micro-step, rank). So a resumed run
// needs to know its step only.
//
// Training draws samples in the order of data/sample_order.h. Epoch follows epoch without a gap: a batch may hold the
// last samples of one epoch and the first of the next. Position p of this endless order belongs to step p /
// train_batch. Within a step, consecutive positions go to the first micro-step, then to the second, and so on; within a
// micro-step, to the first rank, then to the second, and so on (BatchLayout::part). So a step sees the same samples in
// the same order under every layout with the same train_batch.
#pragma once

#include <cstdint>
#include <vector>

#include "nought/data/dataset.h"
#include "nought/data/sample_order.h"
#include "nought/data/step_source.h"
#include "nought/tensor/tensor.h"

namespace nought {

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

class TrainSampler final : public StepSource {
 public:
  /// shuffle = false: samples come in their own order. ConfigError if the data has fewer samples than one step takes.
  TrainSampler(TokenDataset dataset, BatchLayout layout, uint64_t seed, bool shuffle = true);

  /// The number of steps that see all samples `epochs` times. The last step may begin another epoch.
  int64_t steps_for(double epochs) const override;
  /// The sample in row `row` of a micro-batch of this rank.
  int64_t sample_at(int64_t step, int64_t micro_step, int64_t row) const;
  std::vector<Batch> batches(int64_t step, Memory& memory) const override;
  Batch batch(int64_t step, int64_t micro_step, Memory& memory) const;
  double weight_of_step(int64_t step) const override { return static_cast<double>(targets_in_step(step)); }
  double weight_of_step(int64_t step, int first, int ranks) const override {
    return static_cast<double>(targets_in_step(step, first, ranks));
  }
  int64_t tokens_of_step(int64_t /*step*/) const override { return targets_per_step(); }
  int64_t num_samples() const override { return dataset_.num_samples(); }
  int64_t num_tokens() const override { return dataset_.num_tokens(); }
  uint64_t fingerprint() const override { return dataset_.fingerprint(); }
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

  TokenDataset dataset_;
  BatchLayout layout_;
  uint64_t seed_;
  SampleOrder order_;
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
