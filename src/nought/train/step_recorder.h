// StepRecorder: records the trace events of a run's steps, and what they tell: the breakdown of a step, its profile,
// its trace, its collectives, and who is slow.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nought/config/run_plan.h"
#include "nought/diagnose/breakdown.h"
#include "nought/diagnose/stragglers.h"
#include "nought/models/decoder.h"
#include "nought/train/observer.h"
#include "nought/zero/sharded_model.h"

namespace nought {

class StepRecorder {
 public:
  /// What the plan asks for is recorded if the communicator has a timeline. The plan and the model must outlive this
  /// object. Collective.
  StepRecorder(const RunPlan& plan, Communicator& world, ShardedModel& model, const Decoder& decoder);

  /// The trace is that of this step; without this call there is none.
  void trace(int64_t step) { traced_step_ = step; }
  /// The next step is number `step`.
  void begin(int64_t step);
  /// The step has been made: adds to its report what its events tell. model_flops: of this rank's tokens.
  void end(StepReport& report, double model_flops);
  /// What went on between steps is no part of the next one.
  void forget();

  /// Who is slow, if the plan asks for it and there are several ranks; else null.
  StragglerLog* stragglers() { return stragglers_ ? &*stragglers_ : nullptr; }
  /// All collectives of this rank so far, if the plan asks for them.
  const std::vector<CollectiveTotal>& collectives() const { return collectives_; }

 private:
  StepProfile profile_of(std::span<const TraceEvent> events, const StepReport& report, double model_flops) const;

  const RunPlan& plan_;
  Communicator& world_;
  ShardedModel& model_;
  const Decoder& decoder_;
  std::optional<StragglerLog> stragglers_;
  std::vector<CollectiveTotal> collectives_;
  int64_t traced_step_ = 0;
  // What belongs to the step that goes on:
  bool traced_ = false, profiled_ = false;
  TraceEvent::Clock::time_point origin_ = {};
  StateTimes before_ = {};
};

}  // namespace nought
