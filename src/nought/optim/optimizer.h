// What the optimizers of options.h update, and by which rule: a stretch of one parameter.
//
// Design goals: no optimizer knows of ranks, shards or Units; zero/sharded_optimizer cuts parameters into stretches and
// keeps the states. An optimizer either updates each element by itself (update), or gives a direction first, which is
// scaled by norms of the whole parameter (Lamb) or orthogonalised as a whole matrix (Muon) before it is applied.
#pragma once

#include <cstdint>
#include <vector>

#include "nought/autograd/unit.h"
#include "nought/kernels/kernels.h"
#include "nought/optim/options.h"

namespace nought {

/// A stretch of n elements of one parameter, and how to update it.
struct UpdateSpan {
  Tensor parameter;            // [n] f32
  Tensor gradient;             // [n] float
  Tensor parameter_copy;       // [n] of a narrower dtype, or undefined
  std::vector<Tensor> states;  // [n] f32 each, in the order of the optimizer's states()
  double lr = 0, weight_decay = 0, gradient_scale = 1;
  int64_t step = 1;  // 1 for the first update
};

/// What the options come to for one parameter.
struct ParameterRule {
  Method method;  // Muon's other parameters have AdamOptions here
  double lr_scale = 1, weight_decay = 0;
  /// What is kept for each element.
  std::vector<StateKind> states() const;
};
/// The rule of a parameter that is trained; Error for another. ConfigError if a group's pattern is not a regular
/// expression.
ParameterRule rule_for(const OptimizerOptions& options, const Parameter& parameter);

/// Updates the span; Error for a method that gives a direction.
void update_by(const Method& method, const Context& context, const UpdateSpan& span);
/// Writes the direction, [n] f32; Error for a method without one.
void direction_by(const Method& method, const Context& context, const UpdateSpan& span, const Tensor& out);

/// The method with other betas; unchanged if it has none.
Method with_betas(Method method, Betas betas);

}  // namespace nought
