// What stays gathered between the passes of a step at stage 3: DeepSpeed's stage3_max_live_parameters and
// stage3_max_reuse_distance.
#include "nought/config/resolve_steps.h"

namespace nought {

namespace {

/// DeepSpeed's default of both numbers, which files say at every stage.
constexpr int64_t kDeepSpeeds = 1'000'000'000;

/// A number of the section zero_optimization that has two names, if one of them is given.
std::optional<Candidate<int64_t>> number_of(const Resolver& r, const std::string& name, const Auto<int64_t>& setting,
                                            const std::string& other_name, const Auto<int64_t>& other) {
  const auto read = [&](const std::string& key, const Auto<int64_t>& each) {
    Candidate<int64_t> number = r.deepspeed("zero_optimization." + key, each.value);
    require_at_least<int64_t>(number, 0);
    return number;
  };
  if (setting.given() && other.given()) require_equal(read(name, setting), read(other_name, other));
  if (setting.given()) return read(name, setting);
  if (other.given()) return read(other_name, other);
  return std::nullopt;
}

}  // namespace

void resolve_live_parameters(Resolver& r) {
  const DsLiveParameters& zero = r.ds.zero_optimization.live;
  const std::string most_name = "stage3_max_live_parameters", distance_name = "stage3_max_reuse_distance";
  const auto most =
      number_of(r, most_name, zero.stage3_max_live_parameters, "max_live_parameters", zero.max_live_parameters);
  const auto distance =
      number_of(r, distance_name, zero.stage3_max_reuse_distance, "max_reuse_distance", zero.max_reuse_distance);
  LiveParameters& live = r.plan.layout.sharding.live;
  if (most) live.most = most->value;
  if (distance) live.reuse_distance = distance->value;
  if (r.plan.layout.zero_stage < 3) {
    for (const auto& each : {most, distance})
      if (each && each->value != kDeepSpeeds)
        r.warn(
            fmt::format("{} has no effect at stage {}: passes gather nothing", each->place, r.plan.layout.zero_stage));
    return;
  }
  const TrainingConfig& t = r.config.training;
  r.plan.live_fits_memory = (t.device_memory.given || t.host_memory.given) && (!most || most->value > 0);
  const bool automatic = zero.stage3_max_live_parameters.automatic() || zero.max_live_parameters.automatic();
  if (most)
    r.note(most_name, *most);
  else
    r.plan.resolved.push_back(
        {most_name, r.plan.live_fits_memory ? "auto" : "0",
         fmt::format("{}: {}", automatic ? "deepspeed: auto" : "default",
                     r.plan.live_fits_memory
                         ? "as many Units stay gathered between their passes as fit the memory budget"
                         : "no memory budget (training.device_memory) says how many Units may stay gathered")});
  if (distance) r.note(distance_name, *distance);
}

}  // namespace nought
