// AnswerSampler: the pairs of answers of each step, packed into rows of about one length, as a function of the step.
//
// A step has micro_batch * accumulation * ranks pairs, in the order of data/sample_order.h, spread as AnswerPacking
// does, so that a pair is never torn. A micro-batch has at most `most_tokens` tokens. It is filled up to the same
// number in every step, so that steps want the same memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "nought/data/answer_data.h"
#include "nought/data/answer_packing.h"
#include "nought/data/sample_order.h"
#include "nought/data/sampler.h"
#include "nought/data/step_source.h"

namespace nought {

struct AnswerSamplerOptions {
  BatchLayout layout = {};
  AnswerBatchOptions batch = {};    // likelihood: what the mean cross-entropy of chosen answers counts in a step's loss
  int64_t most_tokens = 0;          // a micro-batch has no more; there is room for the longest of its pairs
  bool whole_accumulation = false;  // every step has all its micro-batches, as pipelines need them
  uint64_t seed = 0;
  bool shuffle = true;
};

class AnswerSampler final : public StepSource {
 public:
  /// ConfigError if the data has fewer pairs than one step takes.
  AnswerSampler(std::shared_ptr<const AnswerData> data, const AnswerSamplerOptions& options);

  /// Sequences have the numbers 2i and 2i + 1 of the i-th pair of the step.
  std::vector<Batch> batches(int64_t step, Memory& memory) const override;
  /// The micro-batches of any pairs, at most as many as a step has, numbered in their order.
  std::vector<Batch> batches_of(std::span<const int64_t> pairs, AnswerSides sides, Memory& memory) const;
  /// The pairs of a step, in their order.
  std::vector<int64_t> pairs_of_step(int64_t step) const;
  double weight_of_step(int64_t step) const override;
  double weight_of_step(int64_t step, int first, int ranks) const override;
  int64_t tokens_of_step(int64_t step) const override;
  int64_t steps_for(double epochs) const override;
  int64_t num_samples() const override { return data_->num_pairs(); }
  int64_t num_tokens() const override { return data_->num_tokens(); }
  uint64_t fingerprint() const override { return data_->fingerprint(); }

  const AnswerData& data() const { return *data_; }
  int64_t pairs_per_step() const { return options_.layout.train_batch(); }
  /// The tokens of a micro-batch, padding included.
  int64_t row_tokens() const { return row_tokens_; }
  /// The log-probability of each answer under the reference model.
  void set_reference(std::vector<double> reference) { reference_ = std::move(reference); }
  std::span<const double> reference() const { return reference_; }

 private:
  /// How pairs are spread over as few micro-batches as fit, `tokens` each.
  AnswerPacking::Parts pack(std::span<const int64_t> pairs, AnswerSides sides, int64_t tokens, int64_t& most) const;
  int64_t longest_row() const;

  std::shared_ptr<const AnswerData> data_;
  AnswerSamplerOptions options_;
  AnswerPacking packing_;
  SampleOrder order_;
  int64_t row_tokens_ = 0;
  std::vector<double> reference_;
};

}  // namespace nought
