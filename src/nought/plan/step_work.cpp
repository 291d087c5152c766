#include "nought/plan/step_work.h"

#include <algorithm>
#include <array>
#include <limits>

#include "nought/base/processor_time.h"
#include "nought/comm/mesh.h"
#include "nought/measure/rates.h"
#include "nought/plan/compressed_steps.h"
#include "nought/plan/dry_run_rank.h"
#include "nought/plan/pass_times.h"

namespace nought {

namespace {

/// Steps of one rank without others.
class DryRun {
 public:
  DryRun(const ModelConfig& config, const Layout& layout, const DryRunPlace& at)
      : layout_(layout), rank_(config, layout, at), engine_(rank_.model) {
    rank_.begin();
    engine_.set_schedule(schedules_of(layout, rank_.mesh));
    for (int64_t i = updates_before_compression(rank_.model.options()); i > 0; --i) step(dry_run_micro_batches(layout));
  }

  /// What a step of so many micro-batches takes.
  StepWork step(int64_t micro_batches) {
    const CountedWork before = rank_.work;
    std::vector<Batch> batches;
    for (int64_t i = 0; i < micro_batches; ++i)
      batches.push_back(empty_batch_of(layout_, layout_.micro_batch, *rank_.context.memory));
    rank_.step(engine_, batches);
    const CountedWork& after = rank_.work;
    return {after.product_seconds - before.product_seconds, after.other_seconds - before.other_seconds,
            after.update_seconds - before.update_seconds, after.operations - before.operations};
  }

 private:
  const Layout& layout_;
  DryRunRank rank_;
  Engine engine_;
};

}  // namespace

StepWork work_of_step(const ModelConfig& config, const Layout& layout, int place, OperationTimes& times) {
  DryRun run(config, layout, {.place = place, .times = &times});
  const int64_t whole = dry_run_micro_batches(layout), beyond = layout.accumulation - whole;
  const StepWork shorter = run.step(whole - (beyond > 0 ? 1 : 0)), longer = run.step(whole);
  const auto extrapolated = [&](double StepWork::*of) {
    return longer.*of + static_cast<double>(beyond) * (longer.*of - shorter.*of);
  };
  return {extrapolated(&StepWork::products), extrapolated(&StepWork::other), extrapolated(&StepWork::update),
          extrapolated(&StepWork::operations)};
}

double host_seconds(const ModelConfig& config, const Layout& layout) {
  constexpr int kSteps = 3;
  DryRun run(config, layout, {});
  double least = std::numeric_limits<double>::infinity();
  const int64_t micro_batches = dry_run_micro_batches(layout);
  run.step(micro_batches);
  for (int i = 0; i < kSteps; ++i) {
    double operations = 0;
    const double seconds = processor_seconds_of([&] { operations = run.step(micro_batches).operations; });
    least = std::min(least, seconds / std::max(operations, 1.0));
  }
  return least;
}

OperationTimes measure_operations(Communicator& ranks, const RunPlan& plan, const ModelConfig& config,
                                  const Layout& layout, const SharedCores& cores) {
  constexpr double kSeconds = 0.3;
  const Context context = Context::cpu();
  MachineRates rates = measure_rates(ranks, plan, cores);
  ranks.barrier().wait();
  std::array<double, 1> host{host_seconds(config, layout)};
  all_reduce_values(ranks, context, host);
  rates.operation = host[0] / ranks.size();
  OperationTimes times(rates);
  for (int place = 0; place < layout.stages(); ++place) work_of_step(config, layout, place, times);
  if (layout.stages() > 1) modelled_times(config, layout, times);
  times.measure(ranks, context, kSeconds);
  return times;
}

}  // namespace nought
