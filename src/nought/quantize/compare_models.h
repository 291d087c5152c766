// compare_models(): how far what one model predicts is from what another one does, over the same tokens.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "nought/quantize/calibration_rows.h"
#include "nought/weights/model_source.h"

namespace nought {

struct ModelComparison {
  int64_t targets = 0;
  double loss = 0, other_loss = 0;  // mean over the targets, in nats
  double divergence = 0;            // the mean Kullback-Leibler divergence of the other's predictions from the first's
  double same_top = 0;              // the share of targets for which both find the same token most probable

  double perplexity() const { return std::exp(loss); }
  double other_perplexity() const { return std::exp(other_loss); }
};

/// Runs the rows through both models, in fp32, each with one block in memory. ConfigError unless they have as many
/// tokens.
ModelComparison compare_models(const ModelSource& model, const ModelSource& other, std::span<const TokenRow> rows,
                               const Context& context);

}  // namespace nought
