#include "nought/quantize/compare_models.h"

#include <algorithm>

#include "nought/quantize/loaded_units.h"

namespace nought {

namespace {

/// Keeps the logits of a pass as well.
class KeepingObjective final : public Objective {
 public:
  explicit KeepingObjective(int64_t vocabulary) : vocabulary_(vocabulary) {}
  RowLoss rows(const Batch& batch) const override {
    logits.resize(static_cast<size_t>(batch.targets.numel() * vocabulary_));
    return [this, inner = default_objective()->rows(batch)](const Context& context, const LogitRows& some) {
      const std::vector<float> values = context.to_host<float>(some.logits);
      std::copy(values.begin(), values.end(), logits.begin() + some.tokens.begin * vocabulary_);
      inner(context, some);
    };
  }
  double weight(const Batch& batch) const override { return default_objective()->weight(batch); }

  mutable std::vector<float> logits;  // [tokens, vocabulary]

 private:
  int64_t vocabulary_;
};

/// A model that rows go through.
class Walked {
 public:
  Walked(const ModelSource& source, std::span<const TokenRow> rows, const Context& context)
      : context_(context),
        decoder_(source.config()),
        units_(context, decoder_, source.weights()),
        sections_(decoder_),
        rows_(decoder_, context, rows),
        objective_(std::make_shared<KeepingObjective>(source.config().vocab_size)) {
    decoder_.set_objective(objective_);
    rows_.pass(sections_.embedding, context_);
    for (const Section& block : sections_.blocks) {
      units_.hold(*block.unit);
      rows_.pass(block, context_);
      units_.let_go(*block.unit);
    }
    units_.hold(*sections_.head.unit);
  }
  /// The sum of the losses of a row.
  double loss(int64_t row) { return rows_.result(sections_.head, context_, row).value.item(); }
  /// The logits of the row whose loss was asked for.
  std::span<const float> logits() const { return objective_->logits; }
  const Batch& batch(int64_t row) const { return rows_.batch(row); }

 private:
  Context context_;
  Decoder decoder_;
  LoadedUnits units_;
  DecoderSections sections_;
  CalibrationRows rows_;
  std::shared_ptr<KeepingObjective> objective_;
};

/// The logarithm of the sum of exponentials.
double log_sum(std::span<const float> logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - most);
  return most + std::log(sum);
}

double divergence(std::span<const float> logits, std::span<const float> others) {
  const double of_logits = log_sum(logits), of_others = log_sum(others);
  double sum = 0;
  for (size_t i = 0; i < logits.size(); ++i)
    sum += std::exp(logits[i] - of_logits) * ((logits[i] - of_logits) - (others[i] - of_others));
  return std::max(sum, 0.0);
}

auto top(std::span<const float> logits) { return std::max_element(logits.begin(), logits.end()) - logits.begin(); }

}  // namespace

ModelComparison compare_models(const ModelSource& model, const ModelSource& other, std::span<const TokenRow> rows,
                               const Context& context) {
  require<ConfigError>(model.config().vocab_size == other.config().vocab_size,
                       "{} has {} tokens, {} has {}: they must read the same tokens", model.folder().string(),
                       model.config().vocab_size, other.folder().string(), other.config().vocab_size);
  Walked first(model, rows, context), second(other, rows, context);
  const auto vocabulary = static_cast<size_t>(model.config().vocab_size);
  ModelComparison result;
  for (int64_t row = 0; row < std::ssize(rows); ++row) {
    result.loss += first.loss(row), result.other_loss += second.loss(row);
    const std::span<const int32_t> targets = first.batch(row).targets.span<int32_t>();
    for (size_t i = 0; i < targets.size(); ++i) {
      if (targets[i] == kIgnoredTarget) continue;
      const auto logits = first.logits().subspan(i * vocabulary, vocabulary),
                 others = second.logits().subspan(i * vocabulary, vocabulary);
      ++result.targets;
      result.divergence += divergence(logits, others);
      result.same_top += top(logits) == top(others) ? 1 : 0;
    }
  }
  require<ConfigError>(result.targets > 0, "the text to compare with has no target");
  const auto count = static_cast<double>(result.targets);
  result.loss /= count, result.other_loss /= count, result.divergence /= count, result.same_top /= count;
  return result;
}

}  // namespace nought
