// How a model's layers are shared out over pipeline stages, and what of them runs again in the backward pass.
#include "nought/config/resolve_steps.h"

namespace nought {

namespace {

/// parse_partition(), which does not know where the name was written.
std::string parse_partition_of(const Candidate<std::string>& name) {
  try {
    return parse_partition(name.value);
  } catch (const ConfigError& error) {
    fail<ConfigError>("{}: {}", name.place, error.what());
  }
}

Candidate<std::string> partition_method(const Resolver& r) {
  const ParallelismArgs& args = r.config.training.parallelism_config;
  const auto own = r.training("parallelism_config.pipeline_parallel_partition", args.pipeline_parallel_partition);
  if (!r.ds.pipeline.partition.given) return own;
  const auto deepspeeds = r.deepspeed("pipeline.partition", r.ds.pipeline.partition.value);
  require<ConfigError>(!own.given || parse_partition_of(own) == parse_partition_of(deepspeeds),
                       "{} = \"{}\" contradicts {} = \"{}\": make them equal, or remove one", deepspeeds.place,
                       deepspeeds.value, own.place, own.value);
  return deepspeeds;
}

}  // namespace

StagePartition resolve_partition(Resolver& r, int64_t ranks) {
  const ParallelismArgs& args = r.config.training.parallelism_config;
  const auto first = r.training("parallelism_config.pipeline_parallel_first_stage_less_layers",
                                args.pipeline_parallel_first_stage_less_layers);
  const auto last = r.training("parallelism_config.pipeline_parallel_last_stage_less_layers",
                               args.pipeline_parallel_last_stage_less_layers);
  auto method = partition_method(r);
  const auto& less = first.given ? first : last;
  if (less.given && !method.given) method = {"uniform", true, less.place, less.reason};
  const StagePartition partition{
      .method = parse_partition_of(method), .first_less = first.value, .last_less = last.value};
  require<ConfigError>(!less.given || partition.method == "uniform",
                       "{} = {} counts layers, and {} = \"{}\" does not: write \"uniform\", or leave one of them out",
                       less.place, less.value, method.place, method.value);
  require_at_least<int64_t>(first, 0);
  require_at_least<int64_t>(last, 0);
  if (ranks == 1) {
    if (method.given && method.value != "best")
      r.warn(fmt::format("{} has no effect: there is one pipeline stage", method.place));
    return {};
  }
  r.note("parallelism_config.pipeline_parallel_partition", method);
  if (first.given) r.note("first_stage_less_layers", first);
  if (last.given) r.note("last_stage_less_layers", last);
  return partition;
}

void resolve_checkpoint_interval(Resolver& r) {
  const Setting<int64_t>& setting = r.ds.pipeline.activation_checkpoint_interval;
  if (!setting.given) return;
  const auto interval = r.deepspeed("pipeline.activation_checkpoint_interval", setting.value);
  require_at_least<int64_t>(interval, 0);
  if (interval.value == 0) return;
  const TrainingConfig& t = r.config.training;
  const bool refused = (t.recompute.given && t.recompute.value != Recompute::full) ||
                       (t.gradient_checkpointing.given && !t.gradient_checkpointing.value);
  require<ConfigError>(!refused,
                       "{} = {} means training.recompute = \"full\", and RUN.json says \"{}\": give one of them",
                       interval.place, interval.value, name_of(r.plan.layout.recompute.mode));
  require<ConfigError>(!r.ds.activation_checkpointing.number_checkpoints.given,
                       "{} = {} and {} both say how many blocks run again together: give one of them", interval.place,
                       interval.value, r.origins.place("deepspeed.activation_checkpointing.number_checkpoints"));
  r.plan.layout.recompute.mode = Recompute::full;
  r.plan.layout.recompute.interval = interval.value;
  for (Resolved& row : r.plan.resolved)
    if (row.key == "recompute" && !t.recompute.given && !t.gradient_checkpointing.given)
      row.value = "full", row.reason = interval.reason;
  r.note("activation_checkpoint_interval", interval);
}

}  // namespace nought
