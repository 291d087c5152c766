#include "nought/comm/mesh.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "nought/comm/flight_recorder.h"

namespace nought {

struct Mesh::Groups {
  /// The groups of an axis set, over all ranks of the world. Names with the same ones share a communicator.
  using Partition = std::vector<std::vector<int>>;

  Grid grid;
  std::unique_ptr<Communicator> owned = {};  // the world, where nobody else has it
  Communicator& world;
  MakeGroup make_group = {};
  std::unique_ptr<Communicator> alone = make_self_communicator();  // serves every group of one
  std::vector<std::pair<Partition, std::unique_ptr<Communicator>>> made = {};
  std::array<Communicator*, kNumGroups> by_name{};

  Communicator& along(Axes axes) {
    if (grid.size(axes) == world.size()) return world;
    if (grid.size(axes) == 1) return *alone;
    Partition partition = grid.groups(axes);
    for (const auto& [known, group] : made)
      if (known == partition) return *group;
    const std::vector<int> ranks = grid.group(world.rank(), axes);
    auto group = make_group ? make_group(ranks) : world.split(ranks.front(), world.rank());
    return *made.emplace_back(std::move(partition), std::move(group)).second;
  }
};

Mesh::Mesh() {
  auto owned = make_self_communicator();
  Communicator& world = *owned;
  auto groups = std::make_shared<Groups>(Groups{.grid = Grid(GridSizes{}), .owned = std::move(owned), .world = world});
  groups->by_name.fill(&world);
  groups_ = std::move(groups);
}

Mesh::Mesh(Communicator& world) : Mesh(world, {.shard = world.size()}) {}

Mesh::Mesh(Communicator& world, const GridSizes& sizes) : Mesh(world, sizes, {}) {}

Mesh::Mesh(Communicator& world, const GridSizes& sizes, const MakeGroup& make_group) {
  auto groups = std::make_shared<Groups>(Groups{.grid = Grid(sizes), .world = world, .make_group = make_group});
  const int ranks = groups->grid.ranks();
  require<ConfigError>(
      ranks == world.size(),
      "a mesh of replicate {} x shard {} x context {} x tensor {} x pipeline {} has {} ranks, the job has {}",
      sizes.replicate, sizes.shard, sizes.context, sizes.tensor, sizes.pipeline, ranks, world.size());
  for (int i = 0; i < kNumGroups; ++i)
    groups->by_name[static_cast<size_t>(i)] = &groups->along(axes_of(static_cast<Group>(i)));
  groups_ = std::move(groups);
}

const Grid& Mesh::grid() const { return groups_->grid; }
Communicator& Mesh::world() const { return groups_->world; }
Communicator& Mesh::group(Group name) const { return *groups_->by_name[static_cast<size_t>(name)]; }
size_t Mesh::groups_made() const { return groups_->made.size(); }

Traffic Mesh::traffic() const {
  Traffic total = groups_->world.traffic();
  for (const auto& [ranks, group] : groups_->made) {
    const Traffic traffic = group->traffic();
    for (size_t i = 0; i < total.counts.size(); ++i) {
      total.counts[i].bytes += traffic.counts[i].bytes;
      total.counts[i].elements += traffic.counts[i].elements;
      total.counts[i].calls += traffic.counts[i].calls;
    }
  }
  return total;
}

std::vector<Mesh::GroupTraffic> Mesh::traffic_by_axes() const {
  // The axes of one grid, of which `among` is one, along which ranks differ.
  const auto axes_of_ranks = [&](const std::vector<int>& ranks, Axis among) {
    Axes axes;
    for (int i = 0; i < kNumAxes; ++i) {
      const auto axis = static_cast<Axis>(i);
      const auto place = [&](int rank) { return grid().coordinate(rank, axis); };
      if (on_one_grid({axis, among}) &&
          std::any_of(ranks.begin(), ranks.end(), [&](int rank) { return place(rank) != place(ranks.front()); }))
        axes.add(axis);
    }
    return axes;
  };
  const auto axes_of_group = [&](const std::vector<int>& ranks) {
    Axes axes = axes_of_ranks(ranks, Axis::tensor);
    // Experts number the same ranks anew: their groups may be parts of those along an axis of the first grid.
    if (grid().size(axes) != static_cast<int>(ranks.size())) axes = axes_of_ranks(ranks, Axis::expert);
    std::string text;
    for (int i = 0; i < kNumAxes; ++i)
      if (const auto axis = static_cast<Axis>(i); axes.has(axis))
        text += fmt::format("{}{}", text.empty() ? "" : " x ", name_of(axis));
    return text;
  };
  std::vector<GroupTraffic> all;
  for (const auto& [partition, group] : groups_->made)
    all.push_back({axes_of_group(partition.front()), group->traffic()});
  if (world().size() == 1) return all;
  std::vector<int> everyone(static_cast<size_t>(world().size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  all.push_back({axes_of_group(everyone), world().traffic()});
  return all;
}

void all_reduce_values(Communicator& group, const Context& context, std::span<double> values, ReduceOp op) {
  if (group.size() == 1 || values.empty()) return;
  const Tensor all = context.upload<double>({static_cast<int64_t>(values.size())}, values, Category::communication);
  group.wait(group.all_reduce(all, op), *context.stream);
  const std::vector<double> sums = context.to_host<double>(all);
  std::copy(sums.begin(), sums.end(), values.begin());
}

std::vector<double> sums_on_host(const Mesh& mesh, const Context& context, std::initializer_list<GroupTensor> sums,
                                 const Tensor& others) {
  int64_t count = others.defined() ? others.numel() : 0;
  for (const GroupTensor& sum : sums) count += sum.values.numel();
  const Tensor all = context.empty({count}, DType::f64, Category::communication);
  int64_t begin = 0, end = 0;  // what one group adds lies in between
  for (const GroupTensor* sum = sums.begin(); sum != sums.end(); ++sum) {
    context.copy(sum->values, all.flat(end, end + sum->values.numel()));
    end += sum->values.numel();
    Communicator& group = mesh.group(sum->group);
    if (sum + 1 != sums.end() && &mesh.group((sum + 1)->group) == &group) continue;
    const FlightSubject subject(group, name_of(sum->group));
    if (group.size() > 1 && end > begin) group.wait(group.all_reduce(all.flat(begin, end)), *context.stream);
    begin = end;
  }
  if (others.defined()) context.copy(others, all.flat(end, count));
  return context.to_host<double>(all);
}

}  // namespace nought
