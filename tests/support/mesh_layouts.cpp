#include "support/mesh_layouts.h"

#include <fmt/format.h>

namespace nought::test {
namespace {

std::vector<int> divisors(int number) {
  std::vector<int> all;
  for (int each = 1; each <= number; ++each)
    if (number % each == 0) all.push_back(each);
  return all;
}

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

}  // namespace

GridSizes MeshLayout::grid() const {
  GridSizes all = sizes;
  all.expert_tensor = sizes.tensor;
  return all;
}

Pipeline MeshLayout::pipeline() const {
  if (sizes.pipeline == 1) return {};
  return {.schedule = schedule,
          .ranks = sizes.pipeline,
          .chunks = chunks > 0 ? chunks : default_chunks(schedule),
          .partition = partition};
}

std::string MeshLayout::str() const {
  return fmt::format(
      "tensor {}{} x context {}{} x pipeline {}{} x replicate {} x shard {}, experts over {}, stage {}", sizes.tensor,
      sequence_parallel ? " with slices" : "", sizes.context, method ? fmt::format(" ({})", name_of(*method)) : "",
      sizes.pipeline,
      sizes.pipeline > 1 ? fmt::format(" ({}, {} stages a rank)", name_of(schedule), pipeline().chunks) : "",
      sizes.replicate, sizes.shard, sizes.expert, stage);
}

std::vector<Axis> axes_with_ranks(const GridSizes& sizes) {
  std::vector<Axis> all;
  for (const auto& [axis, size] : {std::pair(Axis::tensor, sizes.tensor), std::pair(Axis::pipeline, sizes.pipeline),
                                   std::pair(Axis::replicate, sizes.replicate), std::pair(Axis::shard, sizes.shard),
                                   std::pair(Axis::expert, sizes.expert)})
    if (size > 1) all.push_back(axis);
  return all;
}

std::vector<GridSizes> factorisations(int ranks, bool experts) {
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

std::vector<MeshLayout> sampled_meshes(int ranks, bool experts) {
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

std::vector<MeshLayout> every_mesh(int ranks, bool experts) {
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

std::vector<MeshLayout> some_meshes(bool experts) {
  const int two = experts ? 2 : 1;
  return {{.sizes = {.shard = 2, .tensor = 2, .expert = two}},
          {.sizes = {.shard = 2, .tensor = 2, .expert = two}, .sequence_parallel = true, .stage = 3},
          {.sizes = {.shard = 4, .expert = experts ? 4 : 1}, .stage = 2},
          {.sizes = {.tensor = 4}, .sequence_parallel = true},
          {.sizes = {.tensor = 2, .pipeline = 2}, .sequence_parallel = true, .stage = 1},
          {.sizes = {.shard = 2, .pipeline = 2, .expert = two}, .stage = 3, .schedule = PipelineSchedule::zbv}};
}

}  // namespace nought::test
