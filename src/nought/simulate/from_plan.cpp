#include "nought/simulate/from_plan.h"

#include "nought/base/error.h"
#include "nought/models/config.h"

namespace nought {

namespace {

SimulatedSchedule schedule_of(const Pipeline& pipeline) {
  switch (pipeline.schedule) {
    case PipelineSchedule::gpipe:
      return SimulatedSchedule::gpipe;
    case PipelineSchedule::one_f_one_b:
      return SimulatedSchedule::one_f_one_b;
    case PipelineSchedule::interleaved:
      return SimulatedSchedule::interleaved;
    case PipelineSchedule::zbh1:
      return SimulatedSchedule::zbh1;
    case PipelineSchedule::zbv:
      return SimulatedSchedule::zbv;
  }
  return SimulatedSchedule::one_f_one_b;
}

Recomputed recomputed_of(Recompute mode) {
  return mode == Recompute::full        ? Recomputed::full
         : mode == Recompute::selective ? Recomputed::light
                                        : Recomputed::none;
}

void require_formulas(const ModelConfig& config, const Layout& layout) {
  require<ConfigError>(!layout.local_steps && !layout.staleness,
                       "simulate: local steps and asynchronous updates have no formula; `nought plan` predicts them");
  require<ConfigError>(config.adapter.empty() && layout.freezing.empty(),
                       "simulate: what is frozen has no formula; `nought plan` predicts it");
  require<ConfigError>(!config.keeps_states(),
                       "simulate: layers of {} that do not attend have no formula; `nought plan` predicts them",
                       config.family);
  require<ConfigError>(layout.replicas == 1,
                       "simulate: dp_replicate_size and mics_shard_size have no formula; `nought plan` predicts them");
}

}  // namespace

SimulatedRun simulated_run(const ModelConfig& config, const Layout& layout, const Software& software) {
  require_formulas(config, layout);
  SimulatedRun run;
  run.model = shape_of(config);
  run.software = software;
  run.sequence = static_cast<double>(layout.seq_length);
  run.global_batch = static_cast<double>(layout.train_batch());
  run.micro_batch = static_cast<double>(layout.micro_batch);
  run.tp = layout.tensor_ranks, run.cp = layout.context_ranks, run.ep = layout.expert_ranks;
  run.pp = layout.stages(), run.vp = static_cast<double>(layout.pipeline.chunks);
  run.dp = layout.data_ranks();
  run.sequence_parallel = layout.sequence_parallel;
  run.zero_stage = layout.zero_stage;
  run.recompute = recomputed_of(layout.recompute.mode);
  run.products = layout.fp8.scaling != Fp8Scaling::none ? Products::fp8 : Products::bf16;
  run.schedule = schedule_of(layout.pipeline);
  run.offload_states = layout.sharding.offload_optimizer.tier.pool != Pool::device;
  return run;
}

}  // namespace nought
