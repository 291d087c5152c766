#include "nought/prove/dry_runs.h"

#include <algorithm>

#include "nought/base/text.h"

namespace nought {

DryRuns run_dry(const ModelConfig& config, const Layout& given, bool with_frozen, Deadline deadline) {
  Layout layout = given;
  layout.gpu.reset();
  DryRuns runs{.classes = classes_of(layout), .ranks = {}, .held = {}, .predictions = {}, .asked = {}, .saved = {}};
  runs.ranks.class_of = runs.classes.class_of;
  const Grid grid(layout.grid());
  for (const int rank : runs.classes.chosen) {
    TranscriptRecorder recorder(grid, rank, with_frozen, deadline);
    DryRunPlace at{.place = grid.coordinate(rank, Axis::pipeline)};
    at.number = rank, at.watch = &recorder;
    runs.predictions.push_back(dry_run(config, layout, at));
    runs.held.push_back(recorder.held());
    runs.asked.push_back(recorder.take_asked());
    runs.saved.push_back(recorder.take_saved());
    runs.ranks.transcripts.push_back(recorder.take());
  }
  return runs;
}

int64_t checkpoint_bytes(const DryRuns& runs) {
  int64_t bytes = 0;
  for (const int of : runs.classes.class_of) bytes += runs.saved[as_index(of)].bytes;  // a class writes equally much
  return bytes;
}

std::optional<Counterexample> find_leak(const std::vector<HeldBetween>& held, int rank) {
  for (const HeldBetween& each : held)
    if (!each.leased.empty())
      return Counterexample{rank, fmt::format("unit {} of rank {} is leased and not released when {} begins",
                                              each.leased.front(), rank, each.before)};
  // The first two steps make what stays: tables of positions, rooms of the second micro-batch.
  constexpr size_t kFirst = 3;
  const auto is_step = [](const HeldBetween& each) { return each.before.starts_with("step "); };
  std::vector<const HeldBetween*> steps;
  for (const HeldBetween& each : held)
    if (is_step(each) || &each == &held.back()) steps.push_back(&each);
  if (steps.size() <= kFirst) return std::nullopt;
  for (size_t pool = 0; pool < kNumPools; ++pool)
    for (size_t category = 0; category < kNumCategories; ++category) {
      const auto grown = [&](size_t i) {
        return steps[i]->bytes[pool][category] - steps[i - 1]->bytes[pool][category];
      };
      // What grows and shrinks again, as fragments of local steps do that are on their way, is no leak.
      bool grows = true;
      for (size_t i = kFirst; i < steps.size(); ++i) grows &= grown(i) > 0;
      if (!grows) continue;
      return Counterexample{
          rank, fmt::format("rank {} holds {} more of {} in the {} pool when {} begins than when {} began", rank,
                            format_bytes(grown(kFirst)), name_of(static_cast<Category>(category)),
                            name_of(static_cast<Pool>(pool)), steps[kFirst]->before, steps[kFirst - 1]->before)};
    }
  return std::nullopt;
}

}  // namespace nought
