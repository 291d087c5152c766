// How a model's layers are shared out over pipeline stages, and what of them runs again in the backward pass.
#include "nought/config/resolver.h"

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

}  // namespace

Candidate<std::string> Resolver::partition_method() const {
  const ParallelismArgs& args = config_.training.parallelism_config;
  const auto own = training("parallelism_config.pipeline_parallel_partition", args.pipeline_parallel_partition);
  if (!ds_.pipeline.partition.given) return own;
  const auto deepspeeds = deepspeed("pipeline.partition", ds_.pipeline.partition.value);
  require<ConfigError>(!own.given || parse_partition_of(own) == parse_partition_of(deepspeeds),
                       "{} = \"{}\" contradicts {} = \"{}\": make them equal, or remove one", deepspeeds.place,
                       deepspeeds.value, own.place, own.value);
  return deepspeeds;
}

StagePartition Resolver::resolve_partition(int64_t ranks) {
  const ParallelismArgs& args = config_.training.parallelism_config;
  const auto first = training("parallelism_config.pipeline_parallel_first_stage_less_layers",
                              args.pipeline_parallel_first_stage_less_layers);
  const auto last = training("parallelism_config.pipeline_parallel_last_stage_less_layers",
                             args.pipeline_parallel_last_stage_less_layers);
  auto method = partition_method();
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
      warn(fmt::format("{} has no effect: there is one pipeline stage", method.place));
    return {};
  }
  note("parallelism_config.pipeline_parallel_partition", method);
  if (first.given) note("first_stage_less_layers", first);
  if (last.given) note("last_stage_less_layers", last);
  return partition;
}

void Resolver::resolve_checkpoint_interval() {
  const Setting<int64_t>& setting = ds_.pipeline.activation_checkpoint_interval;
  if (!setting.given) return;
  const auto interval = deepspeed("pipeline.activation_checkpoint_interval", setting.value);
  require_at_least<int64_t>(interval, 0);
  if (interval.value == 0) return;
  const TrainingConfig& t = config_.training;
  const bool refused = (t.recompute.given && t.recompute.value != Recompute::full) ||
                       (t.gradient_checkpointing.given && !t.gradient_checkpointing.value);
  require<ConfigError>(!refused,
                       "{} = {} means training.recompute = \"full\", and RUN.json says \"{}\": give one of them",
                       interval.place, interval.value, name_of(plan_.layout.recompute.mode));
  require<ConfigError>(!ds_.activation_checkpointing.number_checkpoints.given,
                       "{} = {} and {} both say how many blocks run again together: give one of them", interval.place,
                       interval.value, origins_.place("deepspeed.activation_checkpointing.number_checkpoints"));
  plan_.layout.recompute.mode = Recompute::full;
  plan_.layout.recompute.interval = interval.value;
  for (Resolved& row : plan_.resolved)
    if (row.key == "recompute" && !t.recompute.given && !t.gradient_checkpointing.given)
      row.value = "full", row.reason = interval.reason;
  note("activation_checkpoint_interval", interval);
}

}  // namespace nought
