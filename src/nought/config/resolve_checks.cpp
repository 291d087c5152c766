// What a run checks of itself while it trains: steps that jump, replicas that differ, ranks that are slow.
#include "nought/config/resolve_steps.h"

namespace nought {

namespace {

/// Updates between two lines of the receipt; 0: there is none.
int64_t receipt_interval(Resolver& r) {
  constexpr int64_t kDefault = 100;
  const Json& receipt = r.config.training.receipt;
  const std::string place = r.origins.place("training.receipt");
  if (receipt.is_null() || receipt == false) return 0;
  const bool counts = receipt.is_object() && receipt.size() == 1 && receipt.contains("every") &&
                      receipt["every"].is_number_integer() && receipt["every"] >= 1;
  require<ConfigError>(receipt == true || counts,
                       "{}: expected true, false or {{\"every\": K}} with K at least 1, found {}", place,
                       receipt.dump());
  const TrainingConfig& t = r.config.training;
  require<ConfigError>(!t.diloco.sync_every.given && !t.async_data_parallel.staleness.given,
                       "{}: ranks that make steps of their own have no weights that all agree on: remove it, or {}",
                       place, t.diloco.sync_every.given ? "training.diloco" : "training.async_data_parallel");
  return counts ? receipt["every"].get<int64_t>() : kDefault;
}

}  // namespace

void resolve_checks(Resolver& r) {
  const TrainingConfig& t = r.config.training;
  const auto alone = [&](const std::string& place) {
    if (r.plan.layout.ranks == 1) r.warn(fmt::format("{} has no effect with one rank: it compares ranks", place));
  };
  if (const auto factor = r.training("spiky_loss_factor", t.spiky_loss_factor); factor.given) {
    require<ConfigError>(std::isfinite(factor.value) && factor.value > 1, "{}: expected a finite number > 1, got {}",
                         factor.place, factor.value);
    r.plan.spiky_loss_factor = r.note("spiky_loss_factor", factor);
  }
  const char* interval_key = "check_weight_hash_across_dp_replicas_interval";  // the name that Megatron-LM has for it
  const auto interval = r.training(interval_key, t.check_weight_hash_across_dp_replicas_interval);
  require_at_least<int64_t>(interval, 0);
  if (interval.value > 0) {
    r.plan.weight_hash_interval = r.note(interval_key, interval);
    alone(interval.place);
  }
  if (const int64_t every = receipt_interval(r); every > 0)
    r.plan.receipt_every = r.note("receipt", r.section_value("training.receipt", every, true));
  if (const auto straggler = r.training("log_straggler", t.log_straggler); straggler.value) {
    r.plan.log_straggler = r.note("log_straggler", straggler);
    alone(straggler.place);
  }
}

}  // namespace nought
