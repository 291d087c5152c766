// Starts of an adapter that are made of the weights that it adds to: PiSSA (arXiv 2404.02948) and OLoRA (arXiv
// 2406.01775); and one whose factors are made of each other (orthogonal).
//
// Design goals: B A is what peft's is. Of PiSSA and OLoRA the model begins without what its adapter begins with, so
// that both together are the model. That is a function of the weights alone: a run that goes on computes it again.
#pragma once

#include <map>
#include <string>

#include "nought/models/config.h"
#include "nought/zero/state.h"

namespace nought {

/// A [rank, in] and B [out, rank] of a layer, f32, on the host.
struct StartFactors {
  Tensor a, b;
};
/// scale * B A is the part of the weight, [out, in], with the `rank` largest singular values. iterations: steps of
/// subspace iteration; 0: exact, or until they change no more where the matrix is large.
StartFactors pissa_start(const Context& context, const Tensor& weight, int64_t rank, double scale, int64_t iterations);
/// The first columns of Q and rows of R of the weight, [out, in], which is Q R.
StartFactors olora_start(const Context& context, const Tensor& weight, int64_t rank);
/// Both random, with rows of B and columns of A that are orthogonal to each other: B A is 0. The rank is even.
StartFactors orthogonal_start(const Context& context, int64_t in, int64_t out, int64_t rank, uint64_t key);

/// The weights of a model without what its adapter begins with.
class StartedBase final : public StateSource {
 public:
  /// base: outlives this object.
  StartedBase(const ModelConfig& config, ModelAdapter adapter, const StateSource& base);
  using StateSource::fill;
  void fill(StateKind kind, const Parameter& parameter, std::span<const Interval> elements,
            const Tensor& destination) const override;
  /// A and B at the start of the layer with this weight. Kept.
  const StartFactors& factors_of(const Parameter& weight) const;
  /// Whether this is needed at all.
  static bool is_needed(const ModelAdapter& adapter);

 private:
  const LowRank* taking(const Parameter& weight) const;
  Tensor whole(const Parameter& weight) const;

  const WeightLayout layout_;
  const ModelAdapter adapter_;
  const StateSource& base_;
  const Context context_;
  mutable std::map<std::string, StartFactors> factors_;
  mutable std::string last_;  // the weight that is left
  mutable Tensor left_;
};

}  // namespace nought
