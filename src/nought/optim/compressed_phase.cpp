#include "nought/optim/compressed_phase.h"

#include <algorithm>

#include "nought/base/error.h"

namespace nought {

namespace {

/// The second moments are updated every `interval` updates; after every var_update_scaler of these it doubles.
bool updates_variance(const ZeroOneAdamOptions& options, int64_t update) {
  int64_t at = 0, interval = 1, count = 0;
  for (;;) {
    at = (at / interval + 1) * interval;
    if (at >= update) return at == update;
    if (++count == options.var_update_scaler) count = 0, interval *= 2;
  }
}

/// The ranks synchronize every `interval` updates, which doubles every local_step_scaler updates up to
/// local_step_clipper.
bool synchronizes(const ZeroOneAdamOptions& options, int64_t update) {
  const int64_t doublings = (update - options.var_freeze_step - 1) / options.local_step_scaler;
  int64_t interval = 1;
  for (int64_t i = 0; i < doublings && interval < options.local_step_clipper; ++i) interval *= 2;
  return update % std::min(interval, options.local_step_clipper) == 0;
}

}  // namespace

CompressedPhase phase_of(const Method& method, int64_t update) {
  if (const auto* adam = std::get_if<OneBitAdamOptions>(&method))
    return update > adam->freeze_step ? CompressedPhase::momentum : CompressedPhase::plain;
  if (const auto* lamb = std::get_if<OneBitLambOptions>(&method))
    return update > lamb->freeze_step ? CompressedPhase::momentum : CompressedPhase::plain;
  if (const auto* adam = std::get_if<ZeroOneAdamOptions>(&method)) {
    if (update > adam->var_freeze_step)
      return synchronizes(*adam, update) ? CompressedPhase::synchronization : CompressedPhase::local;
    return updates_variance(*adam, update) ? CompressedPhase::plain : CompressedPhase::gradient;
  }
  return CompressedPhase::plain;
}

int64_t first_compressed(const Method& method) {
  if (const auto* adam = std::get_if<OneBitAdamOptions>(&method)) return adam->freeze_step + 1;
  if (const auto* lamb = std::get_if<OneBitLambOptions>(&method)) return lamb->freeze_step + 1;
  const auto* zero_one = std::get_if<ZeroOneAdamOptions>(&method);
  require(zero_one != nullptr, "this optimizer sends all gradients in every update");
  const int64_t every_one =
      zero_one->var_update_scaler + zero_one->var_update_scaler % 2;  // at first, and then every other
  return std::min(zero_one->var_freeze_step, every_one) + 1;
}

bool updates_locally(const Method& method) { return std::holds_alternative<ZeroOneAdamOptions>(method); }

MomentRule moment_rule(const Method& method) {
  return std::visit(
      [](const auto& each) -> MomentRule {
        if constexpr (requires { each.eps, each.beta1, each.beta2; }) {
          return {each.beta1, each.beta2, each.eps};
        } else {
          fail<Error>("this optimizer has no first moment beside a second one");
        }
      },
      method);
}

}  // namespace nought
