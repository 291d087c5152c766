// CalibrationRows: rows of tokens on their way through a model, one section after the other.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "nought/models/decoder.h"

namespace nought {

/// The tokens of a row, and what each should be followed by; kIgnoredTarget counts nothing.
struct TokenRow {
  std::vector<int32_t> inputs, targets;
};

class CalibrationRows {
 public:
  /// Rows of one length. The decoder outlives it.
  CalibrationRows(Decoder& decoder, const Context& context, std::span<const TokenRow> rows);

  int64_t size() const { return std::ssize(batches_); }
  /// What a section makes of each row; they stay where they are.
  void look(const Section& section, const Context& context);
  /// Takes each row through a section.
  void pass(const Section& section, const Context& context);
  /// What a section makes of one row.
  Var result(const Section& section, const Context& context, int64_t row);
  /// What comes into the next section, of one row.
  const Tensor& hidden(int64_t row) const { return hidden_[static_cast<size_t>(row)]; }
  const std::vector<Tensor>& hidden() const { return hidden_; }
  /// What comes into the next section, in place of what the sections before it would have made.
  void enter(std::vector<Tensor> hidden) { hidden_ = std::move(hidden); }
  const Batch& batch(int64_t row) const { return batches_[static_cast<size_t>(row)]; }

 private:
  std::vector<Batch> batches_;
  std::vector<std::shared_ptr<MicroBatchState>> states_;
  std::vector<Tensor> hidden_;
};

/// The sections of a decoder: the rows of the vocabulary, the blocks, and the head, which gives the loss.
struct DecoderSections {
  explicit DecoderSections(Decoder& decoder);
  Section embedding, head;
  std::vector<Section> blocks;
};

}  // namespace nought
