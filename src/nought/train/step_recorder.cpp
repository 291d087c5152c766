#include "nought/train/step_recorder.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "nought/base/host.h"
#include "nought/comm/first_rank.h"
#include "nought/diagnose/trace.h"

namespace nought {

StepRecorder::StepRecorder(const RunPlan& plan, Communicator& world, ShardedModel& model, const Decoder& decoder)
    : plan_(plan), world_(world), model_(model), decoder_(decoder) {
  if (plan_.log_straggler && world_.size() > 1)
    stragglers_.emplace(plan_.logging_steps, texts_of_ranks(world_, model_.context(), host_name()));
}

void StepRecorder::begin(int64_t step) {
  Timeline* timeline = world_.timeline();
  if (timeline == nullptr) return;
  traced_ = step == traced_step_, profiled_ = plan_.profile && step == plan_.profile->step;
  if (traced_ || profiled_) {
    model_.settle();
    world_.barrier().wait();  // the moment that all ranks' times are from
    timeline->take();
  }
  const bool recorded = traced_ || profiled_ || plan_.wall_clock_breakdown || plan_.comms_logger || stragglers_;
  recorded ? timeline->start() : timeline->stop();
  origin_ = TraceEvent::Clock::now();
  before_ = model_.times();
}

void StepRecorder::end(StepReport& report, double model_flops) {
  Timeline* timeline = world_.timeline();
  if (timeline == nullptr) return;
  const StateTimes offload = model_.times() - before_;
  std::vector<TraceEvent> events = timeline->take();
  if (profiled_) report.profile = profile_of(events, report, model_flops);
  if (plan_.wall_clock_breakdown) {
    report.breakdown = breakdown_of(events);
    report.breakdown->offload = offload.on_way, report.breakdown->offload_exposed = offload.waited;
  }
  if (stragglers_) stragglers_->add(breakdown_of(events));
  if (plan_.comms_logger) {
    std::vector<TraceEvent> collectives = collectives_of(events, plan_.logged_collectives);
    add_collectives(collectives, collectives_);
    if (plan_.comms_logger_verbose) report.collectives = std::move(collectives);
  }
  if (traced_) {
    model_.settle();
    std::vector<TraceEvent> last = timeline->take();
    std::move(last.begin(), last.end(), std::back_inserter(events));
    write_trace(world_, model_.context(), events, origin_, plan_.trace_file);
    forget();
  }
}

void StepRecorder::forget() {
  if (Timeline* timeline = world_.timeline()) timeline->take();
}

StepProfile StepRecorder::profile_of(std::span<const TraceEvent> events, const StepReport& report,
                                     double model_flops) const {
  StepProfile profile{.options = *plan_.profile,
                      .step = report.step,
                      .seconds = report.seconds,
                      .dtype = std::string(name_of(plan_.layout.sharding.dtype)),
                      .world_size = world_.size(),
                      .zero_stage = plan_.layout.zero_stage,
                      .micro_batch = plan_.layout.micro_batch,
                      .accumulation = plan_.layout.accumulation,
                      .seq_length = plan_.layout.seq_length,
                      .model_flops = model_flops};
  const double estimate = profile.model_flops * (1 + profile.options.recompute_factor / 3);
  profile.peak_flops = std::max(report.peak_flops / world_.size(), estimate / report.seconds);
  add_events(events, profile);
  profile.model.name = decoder_.config().family;
  profile.model.parameters = decoder_.parameter_count();
  const Residency& residency = model_.residency();
  for (size_t i = 0; i < decoder_.units().size(); ++i) {
    const Unit& of = *decoder_.units()[i];
    if (!residency.sharded()) {
      profile.rank_parameters += of.numel();
    } else {
      for (size_t segment = 0; segment < of.segments().size(); ++segment)
        if (of.segments()[segment].content != SegmentContent::scales)
          profile.rank_parameters += residency.partition({i, segment}).shard();
    }
    for (ModuleProfile& unit : profile.model.inside)
      if (unit.name == (of.tile_of() == nullptr ? of : *of.tile_of()).name()) unit.parameters += of.numel();
  }
  return profile;
}

}  // namespace nought
