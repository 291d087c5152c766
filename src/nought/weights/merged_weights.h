// MergedWeights: the weights of a model with an adapter added into them: W + scale * B A, formed in fp32 and rounded
// once; and of a decomposed adapter m / |W + scale * B A| of that.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "nought/kernels/kernels.h"
#include "nought/models/adapter_experts.h"
#include "nought/nn/model.h"
#include "nought/weights/adapted_matrix.h"
#include "nought/zero/state.h"

namespace nought {

/// The weights of the model without its adapter.
class MergedWeights final : public StateSource {
 public:
  /// model: with the adapter that `config` has. weights: of it. ConfigError where a bias of B has none to be added to.
  MergedWeights(const Model& model, const ModelConfig& config, std::unique_ptr<StateSource> weights);
  using StateSource::fill;
  void fill(StateKind kind, const Parameter& parameter, std::span<const Interval> elements,
            const Tensor& destination) const override;

 private:
  /// What becomes of a layer's weight, f32.
  struct Change {
    std::string of;                      // the weight
    std::vector<WeightFactors> factors;  // one for each matrix: of experts in one tensor, so many
    Tensor whole;  // where outputs are multiplied too: all of the result; undefined: what is asked for is computed
  };
  /// Null for a weight, or a bias, that stays. Kept until another one is asked for.
  const Change* change_of(const Parameter& weight) const;
  const Change* change_of_expert(const Parameter& weight, const ExpertPart& part) const;
  /// The change of all experts in one tensor, [experts, in, out].
  const Change* change_of_experts(const Parameter& weight, const LowRank& of) const;
  /// All of a bias with that of B.
  Tensor with_bias_of_b(const Parameter& bias, const LowRank& of) const;
  /// All of a layer of the vocabulary with the rows that replace some.
  Tensor with_token_rows(const Parameter& weight, const std::vector<int32_t>& tokens) const;
  Tensor read(const Parameter& parameter) const;
  /// All of a decomposed layer's weight.
  Tensor decomposed(const Parameter& weight, const WeightFactors& factors) const;
  /// `values` are these elements of a weight of this shape.
  void add(const std::vector<WeightFactors>& factors, Interval elements, const Tensor& values,
           const Shape& shape) const;
  void add_to_matrix(const WeightFactors& factors, Interval elements, const Tensor& values, int64_t columns) const;

  const WeightLayout layout_;
  WeightLayout experts_layout_ = WeightLayout::in_out;  // of experts in one tensor: out_in if B A is as the tensor is
  const ModelAdapter adapter_;
  std::unique_ptr<StateSource> weights_;
  std::map<std::string, const Parameter*> parameters_;
  std::map<std::string, ExpertPart> experts_;   // by the tensors of the model
  std::map<std::string, std::string> routers_;  // what adapters call them
  const Context context_;
  mutable Change last_;
};

}  // namespace nought
