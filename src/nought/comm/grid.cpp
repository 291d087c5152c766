#include "nought/comm/grid.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "nought/base/error.h"

namespace nought {
namespace {

// Fastest first. The axes of both grids but the last two number the same ranks in two ways.
constexpr std::array kDenseOrder{Axis::tensor, Axis::context, Axis::shard, Axis::replicate, Axis::pipeline};
constexpr std::array kExpertOrder{Axis::expert_tensor, Axis::expert, Axis::expert_shard, Axis::replicate,
                                  Axis::pipeline};
constexpr Axes kDenseOnly{Axis::tensor, Axis::context, Axis::shard};
constexpr Axes kExpertOnly{Axis::expert_tensor, Axis::expert, Axis::expert_shard};

constexpr size_t at(Axis axis) { return static_cast<size_t>(axis); }

/// The axes of the grid on which these lie.
constexpr const std::array<Axis, 5>& order_of(Axes axes) {
  return axes.meets(kExpertOnly) ? kExpertOrder : kDenseOrder;
}

}  // namespace

std::string_view name_of(Axis axis) {
  static constexpr std::array<std::string_view, kNumAxes> kNames{"tensor",   "context",       "shard",  "replicate",
                                                                 "pipeline", "expert_tensor", "expert", "expert_shard"};
  return kNames[at(axis)];
}

std::string_view name_of(Group group) {
  static constexpr std::array<std::string_view, kNumGroups> kNames{
      "parameters", "replicas",  "samples", "holders", "losses",   "metrics", "balance",       "norm",
      "fp8_maxima", "decisions", "tensor",  "context", "pipeline", "experts", "expert_tensor", "expert_parameters"};
  return kNames[static_cast<size_t>(group)];
}

bool on_one_grid(Axes axes) { return !axes.meets(kDenseOnly) || !axes.meets(kExpertOnly); }

Axes axes_of(Group group) {
  using enum Axis;
  switch (group) {
    case Group::parameters:
      return {shard, context};
    case Group::replicas:
      return {replicate};
    case Group::samples:
      return {shard, replicate};
    case Group::losses:
    case Group::metrics:
      // Ranks along the tensor axis see the same tokens: they are never added up.
      return {context, shard, replicate, pipeline};
    case Group::holders:
      return {context, shard, replicate};
    case Group::balance:
      // The stages have told each other of their layers before.
      return {context, shard, replicate};
    case Group::norm:
    case Group::decisions:
      return {tensor, context, shard, replicate, pipeline};
    case Group::fp8_maxima:
      // Another stage has noted nothing of a layer: 0.
      return {tensor, context, shard, replicate, pipeline};
    case Group::tensor:
      return {tensor};
    case Group::context:
      return {context};
    case Group::pipeline:
      return {pipeline};
    case Group::experts:
      return {expert};
    case Group::expert_tensor:
      return {expert_tensor};
    case Group::expert_parameters:
      return {expert_shard};
  }
  fail("no group has the number {}", static_cast<int>(group));
}

Grid::Grid(const GridSizes& sizes) {
  sizes_[at(Axis::tensor)] = sizes.tensor;
  sizes_[at(Axis::context)] = sizes.context;
  sizes_[at(Axis::shard)] = sizes.shard;
  sizes_[at(Axis::replicate)] = sizes.replicate;
  sizes_[at(Axis::pipeline)] = sizes.pipeline;
  sizes_[at(Axis::expert_tensor)] = sizes.expert_tensor;
  sizes_[at(Axis::expert)] = sizes.expert;
  sizes_[at(Axis::expert_shard)] = 1;
  for (int i = 0; i < kNumAxes; ++i) {
    const auto axis = static_cast<Axis>(i);
    require<ConfigError>(size(axis) > 0, "the {} axis of the mesh has size {}: it must be at least 1", name_of(axis),
                         size(axis));
  }
  const int inner = sizes.tensor * sizes.context * sizes.shard, used = sizes.expert * sizes.expert_tensor;
  require<ConfigError>(inner % used == 0,
                       "experts over {} x {} ranks (expert x expert_tensor) do not divide the {} ranks of a replica's "
                       "stage (shard {} x context {} x tensor {})",
                       sizes.expert, sizes.expert_tensor, inner, sizes.shard, sizes.context, sizes.tensor);
  sizes_[at(Axis::expert_shard)] = inner / used;
  ranks_ = inner * sizes.replicate * sizes.pipeline;
  host_ranks_ = sizes.host_ranks;
}

int Grid::size(Axes axes) const {
  int product = 1;
  for (int i = 0; i < kNumAxes; ++i)
    if (axes.has(static_cast<Axis>(i))) product *= sizes_[static_cast<size_t>(i)];
  return product;
}

Grid::Coordinates Grid::coordinates(int rank) const {
  require(0 <= rank && rank < ranks_, "rank {} is not on a mesh of {} ranks", rank, ranks_);
  Coordinates coordinates{};
  const auto number = [&](const auto& order) {
    int rest = rank;
    for (const Axis axis : order) {
      coordinates[at(axis)] = rest % size(axis);
      rest /= size(axis);
    }
  };
  number(kDenseOrder);
  number(kExpertOrder);
  return coordinates;
}

int Grid::first_of_group(int rank, Axes axes) const {
  require(on_one_grid(axes),
          "a group cannot lie along an expert axis and one of tensor, context and shard: they number the same ranks");
  const Coordinates own = coordinates(rank);
  int first = 0, stride = 1;
  for (const Axis axis : order_of(axes)) {
    if (!axes.has(axis)) first += own[at(axis)] * stride;
    stride *= size(axis);
  }
  return first;
}

std::vector<int> Grid::group(int rank, Axes axes) const {
  std::vector<int> ranks{first_of_group(rank, axes)};
  int stride = 1;
  for (const Axis axis : order_of(axes)) {
    const size_t before = axes.has(axis) ? ranks.size() : 0;
    for (int place = 1; place < size(axis); ++place)
      for (size_t i = 0; i < before; ++i) ranks.push_back(ranks[i] + place * stride);
    stride *= size(axis);
  }
  return ranks;
}

std::vector<std::vector<int>> Grid::groups(Axes axes) const {
  Axes others;
  for (const Axis axis : order_of(axes))
    if (!axes.has(axis)) others.add(axis);
  std::vector<std::vector<int>> groups;
  for (const int first : group(0, others)) groups.push_back(group(first, axes));
  return groups;
}

std::optional<Grid::Levels> Grid::levels(Axes axes) const {
  if (host_ranks_ < 2) return std::nullopt;
  Levels levels;
  for (const std::vector<int>& ranks : groups(axes)) {
    const auto host_of = [&](size_t i) { return ranks[i] / host_ranks_; };
    size_t local = 1;
    while (local < ranks.size() && host_of(local) == host_of(0)) ++local;
    if (local == 1 || local == ranks.size() || ranks.size() % local != 0) return std::nullopt;
    std::vector<std::vector<int>> across(local);
    for (size_t i = 0; i < ranks.size(); ++i) {
      const bool first = i % local == 0;
      if (i > 0 && first == (host_of(i) == host_of(i - 1))) return std::nullopt;
      if (first) levels.inside.emplace_back();
      levels.inside.back().push_back(ranks[i]);
      across[i % local].push_back(ranks[i]);
    }
    for (std::vector<int>& each : across) levels.across.push_back(std::move(each));
  }
  return levels;
}

std::vector<std::vector<int>> Grid::neighbours(Axes axes, int count) const {
  require<ConfigError>(count > 0 && size(axes) % count == 0, "groups of {} neighbours do not divide {} ranks", count,
                       size(axes));
  std::vector<std::vector<int>> cut;
  for (const std::vector<int>& ranks : groups(axes))
    for (auto begin = ranks.begin(); begin != ranks.end(); begin += count) cut.emplace_back(begin, begin + count);
  return cut;
}

bool Grid::inside_hosts(const std::vector<std::vector<int>>& groups) const {
  if (host_ranks_ == 0) return false;
  return std::all_of(groups.begin(), groups.end(), [&](const std::vector<int>& ranks) {
    return ranks.front() / host_ranks_ == ranks.back() / host_ranks_;
  });
}

namespace {

/// "ranks 0 1 | 2 3": the groups along an axis, or the first of them.
std::string groups_along(const Grid& grid, Axis axis) {
  constexpr size_t kShown = 4;  // groups, and ranks of a group
  std::string text = "ranks ";
  const std::vector<std::vector<int>> all = grid.groups({axis});
  for (size_t i = 0; i < std::min(all.size(), kShown); ++i) {
    const std::vector<int>& ranks = all[i];
    const auto end = ranks.begin() + static_cast<std::ptrdiff_t>(std::min(ranks.size(), kShown));
    text +=
        fmt::format("{}{}{}", i > 0 ? " | " : "", fmt::join(ranks.begin(), end, " "), end == ranks.end() ? "" : " ...");
  }
  return all.size() > kShown ? text + " | ..." : text;
}

}  // namespace

std::vector<std::string> describe(const Grid& grid) {
  std::vector<std::string> lines;
  const auto add = [&](Axis axis) {
    if (grid.size(axis) > 1)
      lines.push_back(fmt::format("{:<12} {:>4}   {}", name_of(axis), grid.size(axis), groups_along(grid, axis)));
  };
  for (const Axis axis : kDenseOrder) add(axis);
  if (grid.size(Axis::expert) == 1) return lines;  // experts lie as all else does
  if (grid.size(Axis::expert_tensor) != grid.size(Axis::tensor)) add(Axis::expert_tensor);
  add(Axis::expert);
  add(Axis::expert_shard);
  return lines;
}

}  // namespace nought
