#include "nought/config/layout.h"

#include <fmt/core.h>

#include "nought/optim/compressed_phase.h"

namespace nought {

namespace {

/// The options without what only ZeRO stage 0 has: Adam or Lamb in the place of 1-bit optimizers.
ShardingOptions without_compression(ShardingOptions options) {
  options.power_sgd.reset();
  Method& method = options.optimizer.method;
  if (!compresses(method)) return options;
  const MomentRule rule = moment_rule(method);
  if (std::holds_alternative<OneBitLambOptions>(method)) {
    method = LambOptions{.beta1 = rule.beta1, .beta2 = rule.beta2, .eps = rule.eps};
  } else {
    method = AdamOptions{.beta1 = rule.beta1, .beta2 = rule.beta2, .eps = rule.eps};
  }
  return options;
}

}  // namespace

ShardingOptions Layout::sharding_options() const {
  ShardingOptions options = sharding;
  options.policy = Policy::stage(zero_stage);
  options.local_gradients = staleness.has_value();
  return options;
}

Layout Layout::at_zero_stage(int other) const {
  Layout layout = *this;
  layout.zero_stage = other;
  if (other < 3) layout.sharding.offload_param = {}, layout.sharding.codes = {};  // they take stage 3
  if (other > 0) layout.sharding = without_compression(layout.sharding);
  return layout;
}

std::string Layout::str() const {
  std::string text = fmt::format("stage {}, micro-batch {}", zero_stage, micro_batch);
  if (accumulation > 1) text += fmt::format(" x {} accumulated", accumulation);
  return recompute.str().empty() ? text : fmt::format("{}, with {}", text, recompute.str());
}

}  // namespace nought
