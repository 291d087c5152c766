// GrownWeights: the weights of a model that a run has changed. If its vocabulary has grown, the new rows of the
// embedding and of the head begin as the mean of the old ones, as transformers' resize_token_embeddings has it; if its
// head is another one, that begins with random weights.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "nought/nn/model.h"
#include "nought/zero/state.h"

namespace nought {

class GrownWeights final : public StateSource {
 public:
  /// `source` has the values of the parameters of `before`, and `fresh` those of others. All must outlive this object.
  /// A parameter that is filled may have more rows than in `before`.
  GrownWeights(const StateSource& source, const Model& before, const StateSource& fresh);
  using StateSource::fill;
  /// Optimizer states are 0.
  void fill(StateKind kind, const Parameter& parameter, std::span<const Interval> elements,
            const Tensor& destination) const override;

 private:
  /// The mean of the parameter's rows, summed from the first to the last, which is the same in every layout.
  const std::vector<double>& mean_row(const Parameter& parameter) const;

  const StateSource &source_, &fresh_;
  std::map<std::string, const Parameter*> before_;
  mutable std::map<std::string, std::vector<double>> means_;
};

}  // namespace nought
