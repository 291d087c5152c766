// What a run checks of itself while it trains: steps that jump, replicas that differ, ranks that are slow.
#include "nought/config/resolver.h"

namespace nought {

void Resolver::resolve_checks() {
  const TrainingConfig& t = config_.training;
  const auto alone = [&](const std::string& place) {
    if (plan_.layout.ranks == 1) warn(fmt::format("{} has no effect with one rank: it compares ranks", place));
  };
  if (const auto factor = training("spiky_loss_factor", t.spiky_loss_factor); factor.given) {
    require<ConfigError>(std::isfinite(factor.value) && factor.value > 1, "{}: expected a finite number > 1, got {}",
                         factor.place, factor.value);
    plan_.spiky_loss_factor = note("spiky_loss_factor", factor);
  }
  const char* interval_key = "check_weight_hash_across_dp_replicas_interval";  // the name that Megatron-LM has for it
  const auto interval = training(interval_key, t.check_weight_hash_across_dp_replicas_interval);
  require_at_least<int64_t>(interval, 0);
  if (interval.value > 0) {
    plan_.weight_hash_interval = note(interval_key, interval);
    alone(interval.place);
  }
  if (const auto straggler = training("log_straggler", t.log_straggler); straggler.value) {
    plan_.log_straggler = note("log_straggler", straggler);
    alone(straggler.place);
  }
}

}  // namespace nought
