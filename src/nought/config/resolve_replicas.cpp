// Replicas: copies of a sharded model, in accelerate's words (HSDP) and in DeepSpeed's (MiCS).
#include "nought/base/host.h"
#include "nought/config/resolve_steps.h"

namespace nought {

std::optional<Candidate<int64_t>> mics_shard_size(const Resolver& r, int64_t data) {
  const DsZero& zero = r.ds.zero_optimization;
  if (!zero.mics_shard_size.given || zero.mics_shard_size.value == -1) return std::nullopt;
  const auto size = r.deepspeed("zero_optimization.mics_shard_size", zero.mics_shard_size.value);
  require_at_least<int64_t>(size, 1);
  require<ConfigError>(data % size.value == 0,
                       "{} = {}: {} data-parallel rank{} cannot be divided by it; the nearest size that can is {}",
                       size.place, size.value, data, data == 1 ? "" : "s", nearest_divisor(data, size.value));
  const int stage = zero.stage.value;
  require<ConfigError>(stage == 3,
                       "{} = {}: MiCS shards parameters, which is stage 3, and the stage is {}: for shards among {} "
                       "ranks at stage {} write training.parallelism_config.dp_replicate_size = {} instead",
                       size.place, size.value, stage, size.value, stage, data / size.value);
  return size;
}

Candidate<int64_t> replicate_size(const Resolver& r, int64_t data) {
  const ParallelismArgs& args = r.config.training.parallelism_config;
  const auto own = r.training("parallelism_config.dp_replicate_size", args.dp_replicate_size);
  require_at_least<int64_t>(own, 1);
  if (const auto mics = mics_shard_size(r, data)) {
    require_equal(*mics, r.training("parallelism_config.dp_shard_size", args.dp_shard_size));
    const int64_t replicas = data / mics->value;
    require<ConfigError>(!own.given || own.value == replicas,
                         "{} = {} contradicts {} = {}: shards among {} of {} data-parallel ranks make {} replica{}: "
                         "write {}, or remove one",
                         mics->place, mics->value, own.place, own.value, mics->value, data, replicas,
                         replicas == 1 ? "" : "s", replicas);
    return {replicas, true, mics->place, mics->reason};
  }
  require<ConfigError>(data % own.value == 0,
                       "{} = {}: {} data-parallel rank{} cannot be divided by it; the nearest size that can is {}",
                       own.place, own.value, data, data == 1 ? "" : "s", nearest_divisor(data, own.value));
  return own;
}

void resolve_hierarchical_gather(Resolver& r) {
  const DsZero& zero = r.ds.zero_optimization;
  if (!zero.mics_hierarchical_params_gather.value) return;
  const std::string place = r.origins.place("deepspeed.zero_optimization.mics_hierarchical_params_gather");
  const auto without_effect = [&](std::string_view why) { r.warn(fmt::format("{} has no effect: {}", place, why)); };
  if (!zero.mics_shard_size.given || zero.mics_shard_size.value == -1)
    return without_effect("mics_shard_size is not given");
  r.plan.layout.host_ranks = launched_on_host().value_or(r.plan.layout.ranks);
  if (!Grid(r.plan.layout.grid()).levels(axes_of(Group::parameters)))
    without_effect(
        fmt::format("with {} ranks on a host, no {} ranks that share out parameters lie on several hosts "
                    "with equally many, two at least, on each",
                    r.plan.layout.host_ranks, r.plan.layout.shard_ranks()));
}

}  // namespace nought
