#include "nought/optim/loss_scaler.h"

#include <algorithm>
#include <cmath>

#include "nought/base/error.h"

namespace nought {

LossScaler::LossScaler(const LossScaleOptions& options)
    : options_(options), scales_(true), dynamic_(options.static_scale == 0) {
  state_.scale = dynamic_ ? std::ldexp(1.0, options.initial_power) : options.static_scale;
  state_.hysteresis = options.hysteresis;
}

void LossScaler::update(bool overflow) {
  if (dynamic_ && overflow) {
    state_.last_overflow = state_.steps;
    if (state_.hysteresis > 1) {
      --state_.hysteresis;
    } else {
      halve();
    }
  } else if (dynamic_) {
    const bool calm = (state_.steps - state_.last_overflow) % options_.scale_window == 0;
    if (options_.consecutive_hysteresis || calm) state_.hysteresis = options_.hysteresis;
    if (calm) state_.scale *= 2;
  }
  ++state_.steps;
}

void LossScaler::halve() {
  require(state_.scale > options_.min_scale,
          "a gradient overflowed at loss scale {}, which is fp16.min_loss_scale: the weights are those of the step "
          "before; use bf16, or lower the learning rate",
          state_.scale);
  state_.scale = std::max(state_.scale / 2, options_.min_scale);
}

}  // namespace nought
