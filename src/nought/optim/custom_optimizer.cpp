#include "nought/optim/custom_optimizer.h"

#include <algorithm>

#include "nought/optim/optimizer.h"

namespace nought {

namespace {

/// What an optimizer from outside may keep. All else has a meaning to what stores and loads it.
bool may_keep(StateKind kind) {
  return kind == StateKind::exp_avg || kind == StateKind::momentum_buffer || kind == StateKind::exp_avg_sq ||
         kind == StateKind::sum;
}

}  // namespace

std::vector<StateKind> CustomOptions::states() const {
  require(optimizer != nullptr, "CustomOptions: there is no optimizer");
  std::vector<StateKind> kinds = optimizer->states();
  for (auto kind = kinds.begin(); kind != kinds.end(); ++kind) {
    require(may_keep(*kind), "optimizer {}: it keeps {}, expected some of exp_avg, momentum_buffer, exp_avg_sq and sum",
            optimizer->name(), name_of(*kind));
    require(std::find(kinds.begin(), kind, *kind) == kind, "optimizer {}: it keeps {} twice", optimizer->name(),
            name_of(*kind));
  }
  return kinds;
}

/// The rule holds the optimizer: on a stream that runs late the update outlives this call.
void CustomOptions::update(const Context& context, const UpdateSpan& span) const {
  const UpdateNumbers numbers{.lr = span.lr, .weight_decay = span.weight_decay, .step = span.step};
  context.run(CustomUpdate{
      .parameter = span.parameter,
      .states = span.states,
      .gradient = span.gradient,
      .parameter_copy = span.parameter_copy,
      .gradient_scale = span.gradient_scale,
      .rule = {.name = optimizer->name(), .update = [numbers, kept = optimizer](const UpdatedElements& elements) {
                 kept->update(numbers, elements);
               }}});
}

}  // namespace nought
