#include "nought/plan/compressed_steps.h"

#include "nought/optim/compressed_phase.h"

namespace nought {

namespace {

constexpr int64_t kFirst = 1;         // updates that send all gradients
constexpr int64_t kZeroOneFirst = 3;  // first updates of 0/1 Adam: two with second moments, one in one bit

}  // namespace

ShardedModel::Options with_early_compression(ShardedModel::Options options, int64_t updates) {
  Method& method = options.optimizer.method;
  if (auto* adam = std::get_if<OneBitAdamOptions>(&method)) {
    if (updates > adam->freeze_step) adam->freeze_step = kFirst;
  } else if (auto* lamb = std::get_if<OneBitLambOptions>(&method)) {
    if (updates > lamb->freeze_step) lamb->freeze_step = kFirst;
  } else if (auto* zero_one = std::get_if<ZeroOneAdamOptions>(&method)) {
    if (updates > zero_one->var_freeze_step)
      *zero_one = {.beta1 = zero_one->beta1,
                   .beta2 = zero_one->beta2,
                   .eps = zero_one->eps,
                   .var_freeze_step = kZeroOneFirst,
                   .var_update_scaler = 1,
                   .local_step_scaler = updates,
                   .local_step_clipper = 1};
  }
  if (options.power_sgd && options.power_sgd->start_iter > 0 && updates > options.power_sgd->start_iter)
    options.power_sgd->start_iter = kFirst;
  return options;
}

int64_t updates_before_compression(const ShardedModel::Options& options) {
  if (options.power_sgd) return options.power_sgd->start_iter == kFirst ? kFirst : 0;
  for (const int64_t first : {kFirst, kZeroOneFirst})
    if (phase_of(options.optimizer.method, first) != CompressedPhase::synchronization &&
        phase_of(options.optimizer.method, first) != CompressedPhase::momentum) {
      const CompressedPhase next = phase_of(options.optimizer.method, first + 1);
      if (next == CompressedPhase::synchronization || next == CompressedPhase::momentum) return first;
    }
  return 0;
}

}  // namespace nought
