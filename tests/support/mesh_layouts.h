// Where the ranks of a test's run stand, and the layouts that the sweeps over all meshes go through.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "support/sharing.h"

#include "nought/parallel/pipeline_rules.h"

namespace nought::test {

struct MeshLayout {
  GridSizes sizes = {};
  bool sequence_parallel = false;
  int stage = 0;
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;  // where there are pipeline stages
  std::optional<ContextMethod> method = {};  // where ranks share sequences; not given: the model chooses

  int ranks() const { return Grid(sizes).ranks(); }
  Pipeline pipeline() const {
    if (sizes.pipeline == 1) return {};
    return {.schedule = schedule, .ranks = sizes.pipeline, .chunks = default_chunks(schedule)};
  }
  PipelineCut cut() const { return {.chunks = static_cast<int>(pipeline().chunks), .v_shaped = pipeline().v_shaped()}; }
  int stages() const { return static_cast<int>(pipeline().ranks * pipeline().chunks); }
  /// The layers of a model that has a Unit for each pipeline stage: two if that is enough.
  int layers() const { return std::max(2, stages() - 2); }
  /// The decoder of a rank, with the options at the stage.
  Sharing rank(Communicator& world, const ModelConfig& config, ShardedModel::Options options = {},
               const Fp8Options& fp8 = {}, const RecomputeOptions& recompute = {},
               const Context& context = Context::cpu()) const {
    options.policy = Policy::stage(stage);
    return {world, sizes, config, options, fp8, sequence_parallel, cut(), recompute, method, context};
  }
  std::string str() const {
    return fmt::format(
        "tensor {}{} x context {}{} x pipeline {}{} x replicate {} x shard {}, experts over {}, stage {}", sizes.tensor,
        sequence_parallel ? " with slices" : "", sizes.context, method ? fmt::format(" ({})", name_of(*method)) : "",
        sizes.pipeline, sizes.pipeline > 1 ? fmt::format(" ({})", name_of(schedule)) : "", sizes.replicate, sizes.shard,
        sizes.expert, stage);
  }
};

inline constexpr std::array kAllSchedules{PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b,
                                          PipelineSchedule::interleaved, PipelineSchedule::zbh1, PipelineSchedule::zbv};

inline std::vector<int> divisors(int number) {
  std::vector<int> all;
  for (int each = 1; each <= number; ++each)
    if (number % each == 0) all.push_back(each);
  return all;
}

/// The axes along which there are several ranks.
inline std::vector<Axis> axes_with_ranks(const GridSizes& sizes) {
  std::vector<Axis> all;
  for (const auto& [axis, size] : {std::pair(Axis::tensor, sizes.tensor), std::pair(Axis::pipeline, sizes.pipeline),
                                   std::pair(Axis::replicate, sizes.replicate), std::pair(Axis::shard, sizes.shard),
                                   std::pair(Axis::expert, sizes.expert)})
    if (size > 1) all.push_back(axis);
  return all;
}

/// Every factorisation of the ranks into tensor x pipeline x replicate x shard, with experts over every size inside.
inline std::vector<GridSizes> factorisations(int ranks, bool experts) {
  std::vector<GridSizes> all;
  for (const int tensor : divisors(ranks))
    for (const int pipeline : divisors(ranks / tensor))
      for (const int replicate : divisors(ranks / tensor / pipeline)) {
        const int shard = ranks / tensor / pipeline / replicate;
        for (const int expert : divisors(experts ? shard : 1))
          all.push_back({.replicate = replicate,
                         .shard = shard,
                         .tensor = tensor,
                         .pipeline = pipeline,
                         .expert = expert,
                         .expert_tensor = tensor});
      }
  return all;
}

// Sixteen pipeline stages would take so deep a model that rounding grows in it: no rank of eight holds two of them
// here.
inline constexpr int kMostStages = 8;

/// Gives layouts one of several choices each, so that every axis meets every choice as soon as can be.
template <class Choice>
class Turns {
 public:
  /// The choice that fewest of the axes with several ranks have met; of several the one that they have met least often.
  Choice next(const GridSizes& sizes, std::span<const Choice> choices) {
    const auto met = [&](Choice choice) {
      std::pair<int, int> axes_and_times;
      for (const Axis axis : axes_with_ranks(sizes)) {
        const int times = times_[{axis, choice}];
        axes_and_times.first += times > 0 ? 1 : 0, axes_and_times.second += times;
      }
      return axes_and_times;
    };
    const Choice chosen =
        *std::min_element(choices.begin(), choices.end(), [&](Choice a, Choice b) { return met(a) < met(b); });
    for (const Axis axis : axes_with_ranks(sizes)) ++times_[{axis, chosen}];
    return chosen;
  }

 private:
  std::map<std::pair<Axis, Choice>, int> times_;
};

/// Each factorisation once. ZeRO stages, schedules and slices of the tokens take turns.
inline std::vector<MeshLayout> sampled_meshes(int ranks, bool experts) {
  constexpr std::array kStages{0, 1, 2, 3};
  constexpr std::array kSlices{0, 1};
  std::vector<MeshLayout> all;
  Turns<int> stages, slices;
  Turns<PipelineSchedule> schedules;
  for (const GridSizes& sizes : factorisations(ranks, experts)) {
    MeshLayout layout{.sizes = sizes, .stage = stages.next(sizes, kStages)};
    if (sizes.tensor > 1) layout.sequence_parallel = slices.next(sizes, kSlices) == 1;
    std::vector<PipelineSchedule> possible;
    for (const PipelineSchedule schedule : kAllSchedules)
      if (sizes.pipeline * default_chunks(schedule) <= kMostStages) possible.push_back(schedule);
    if (sizes.pipeline > 1) layout.schedule = schedules.next(sizes, possible);
    all.push_back(layout);
  }
  return all;
}

/// Each factorisation with every ZeRO stage and schedule, with slices and without.
inline std::vector<MeshLayout> every_mesh(int ranks, bool experts) {
  std::vector<MeshLayout> all;
  for (const GridSizes& sizes : factorisations(ranks, experts))
    for (const bool slices : {false, true})
      for (const int stage : {0, 1, 2, 3})
        for (const PipelineSchedule schedule : kAllSchedules) {
          if ((slices && sizes.tensor == 1) || (sizes.pipeline == 1 && schedule != kAllSchedules.front())) continue;
          const MeshLayout layout{.sizes = sizes, .sequence_parallel = slices, .stage = stage, .schedule = schedule};
          if (layout.stages() <= kMostStages) all.push_back(layout);
        }
  return all;
}

}  // namespace nought::test
