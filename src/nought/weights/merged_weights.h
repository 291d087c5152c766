// MergedWeights: the weights of a model with an adapter added into them: W + scale * B A, formed in fp32 and rounded
// once.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "nought/kernels/kernels.h"
#include "nought/models/config.h"
#include "nought/nn/model.h"
#include "nought/zero/state.h"

namespace nought {

/// The weights of the model without its adapter.
class MergedWeights final : public StateSource {
 public:
  /// model: with the adapter that `config` has. weights: of it.
  MergedWeights(const Model& model, const ModelConfig& config, std::unique_ptr<StateSource> weights);
  using StateSource::fill;
  void fill(StateKind kind, const Parameter& parameter, std::span<const Interval> elements,
            const Tensor& destination) const override;

 private:
  /// The factors of a layer, f32: what is added to row i of its weight is scale * (row i of `rows`) * `columns`.
  struct Factors {
    std::string of;  // the weight that they are added to
    Tensor rows;     // [rows, rank]
    Tensor columns;  // [rank, columns]
    double scale = 1;
  };
  /// Null for a weight that has none. Kept until another one is asked for.
  const Factors* factors_of(const Parameter& weight) const;
  void add(const Factors& factors, Interval elements, const Tensor& values, int64_t columns) const;

  const WeightLayout layout_;
  const ModelAdapter adapter_;
  std::unique_ptr<StateSource> weights_;
  std::map<std::string, const Parameter*> parameters_;
  const Context context_;
  mutable Factors last_;
};

}  // namespace nought
