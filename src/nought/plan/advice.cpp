#include "nought/plan/advice.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "nought/base/text.h"
#include "nought/train/trainer.h"

namespace nought {

namespace {

constexpr size_t kMostAdvice = 3;

/// A layout that keeps the batch, and how much it is changed: stages up to 2 cost nothing but their name, stage 3 half
/// as much traffic again, smaller products some speed, recomputation a few percent of the computation or a third of it,
/// and saved inputs on the host a copy each way.
struct Candidate {
  int stages = 0, halvings = 0;
  int recompute = 0;  // steps up from the layout's
  Layout layout;

  int cost() const {
    return stages + (layout.zero_stage == 3 && stages > 0 ? 2 : 0) + 2 * halvings +
           (recompute == 0                                  ? 0
            : layout.recompute.mode == Recompute::selective ? 1
            : layout.recompute.pool == Pool::device         ? 4
                                                            : 5);
  }
  bool contains(const Candidate& other) const {
    return stages >= other.stages && halvings >= other.halvings && recompute >= other.recompute;
  }
};

/// What saves more activations, step by step; each is a change from the one before it.
std::vector<RecomputeOptions> recompute_steps(const RecomputeOptions& from) {
  std::vector<RecomputeOptions> steps{from};
  for (const Recompute mode : {Recompute::selective, Recompute::full}) {
    if (mode <= from.mode) continue;
    steps.push_back(from);
    steps.back().mode = mode;
  }
  if (from.pool == Pool::device) {
    steps.push_back(steps.back());
    steps.back().pool = Pool::host;
  }
  return steps;
}

std::vector<Candidate> candidates(const Layout& layout) {
  std::vector<Candidate> all;
  const int last_stage = layout.ranks > 1 ? 3 : layout.zero_stage;
  const std::vector<RecomputeOptions> steps = recompute_steps(layout.recompute);
  for (int stage = layout.zero_stage; stage <= last_stage; ++stage)
    for (size_t recompute = 0; recompute < steps.size(); ++recompute)
      for (int halvings = 0; halvings == 0 || layout.micro_batch % (int64_t{1} << halvings) == 0; ++halvings) {
        Candidate each{stage - layout.zero_stage, halvings, static_cast<int>(recompute), layout.at_zero_stage(stage)};
        each.layout.recompute = steps[recompute];
        each.layout.micro_batch >>= halvings;
        each.layout.accumulation <<= halvings;
        if (each.cost() > 0) all.push_back(each);
      }
  std::stable_sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) { return a.cost() < b.cost(); });
  return all;
}

std::string describe(const Candidate& candidate) {
  std::vector<std::string> parts;
  const Layout& layout = candidate.layout;
  if (candidate.stages > 0) parts.push_back(fmt::format("zero_optimization.stage {}", layout.zero_stage));
  if (candidate.recompute > 0) parts.push_back(fmt::format("training.recompute {}", name_of(layout.recompute.mode)));
  if (candidate.recompute > 0 && layout.recompute.pool == Pool::host)
    parts.push_back("activation_checkpointing.cpu_checkpointing true");
  if (candidate.halvings > 0)
    parts.push_back(fmt::format("micro-batch {} with accumulation {}", layout.micro_batch, layout.accumulation));
  return fmt::format("{}", fmt::join(parts, " and "));
}

}  // namespace

std::vector<Advice> changes_that_fit(const ModelConfig& config, const Layout& layout, int64_t device_memory) {
  std::vector<Advice> advice;
  std::vector<Candidate> taken;
  for (const Candidate& each : candidates(layout)) {
    if (std::any_of(taken.begin(), taken.end(), [&](const Candidate& other) { return each.contains(other); })) continue;
    const Prediction prediction = predict(config, each.layout);
    if (prediction.memory.peak_total > device_memory) continue;
    advice.push_back({describe(each), prediction});
    taken.push_back(each);
    if (advice.size() == kMostAdvice) break;
  }
  return advice;
}

std::string describe_changes(const ModelConfig& config, const Layout& layout, int64_t device_memory) {
  const std::vector<Advice> advice = changes_that_fit(config, layout, device_memory);
  std::string text;
  for (const Advice& each : advice)
    text +=
        fmt::format("would fit: {}, which takes {}\n", each.change, format_bytes(each.prediction.memory.peak_total));
  if (!advice.empty()) return text;
  const std::vector<Candidate> all = candidates(layout);
  int64_t least = predict(config, layout).memory.peak_total;
  for (const Candidate& each : all) least = std::min(least, predict(config, each.layout).memory.peak_total);
  return fmt::format(
      "no stage, recompute or micro-batch fits: the least that {} rank{} can do is {} each; use more ranks, shorter "
      "sequences or a smaller model\n",
      layout.ranks, layout.ranks == 1 ? "" : "s", format_bytes(least));
}

std::string explain_refusal(const MemoryLimitError& refusal, const RunPlan& plan) {
  return fmt::format("{}\n{}", refusal.what(),
                     describe_changes(model_config_of(plan), layout_of(plan), plan.device_memory));
}

}  // namespace nought
