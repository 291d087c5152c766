#include "nought/comm/mesh.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "nought/comm/flight_recorder.h"
#include "nought/comm/traffic_sums.h"

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
  std::array<std::optional<OverHosts>, kNumGroups> over_hosts = {};
  Communicator* secondary = alone.get();
  struct Channel {
    int from = 0, to = 0;  // on the pipeline axis
    Communicator* ends = nullptr;
  };
  std::vector<Channel> channels = {};  // that this rank is an end of

  Communicator& along(Axes axes) {
    if (grid.size(axes) == world.size()) return world;
    if (grid.size(axes) == 1) return *alone;
    Partition partition = grid.groups(axes);
    for (const auto& [known, group] : made)
      if (known == partition) return *group;
    return make(std::move(partition));
  }

  /// So many neighbours of those that share out parameters. Where they are the ranks of a host, the group of these.
  void keep_among(int neighbours) {
    if (neighbours == 1) return;
    const auto at = static_cast<size_t>(Group::parameters);
    Partition partition = grid.neighbours(axes_of(Group::parameters), neighbours);
    if (by_name[at]->size() == neighbours) secondary = by_name[at];
    for (const auto& [known, group] : made)
      if (over_hosts[at] && group.get() == over_hosts[at]->inside && known == partition) secondary = group.get();
    if (secondary == alone.get()) secondary = &make(std::move(partition));
  }

  /// Makes this rank's group of a partition into groups of several ranks each.
  Communicator& make(Partition partition) {
    const std::vector<int> ranks = *std::find_if(partition.begin(), partition.end(), [&](const auto& each) {
      return std::find(each.begin(), each.end(), world.rank()) != each.end();
    });
    auto group = make_group ? make_group(ranks) : world.split(ranks.front(), world.rank());
    return *made.emplace_back(std::move(partition), std::move(group)).second;
  }

  /// True if hosts have equally many ranks, as each says of its own.
  bool agree_on_hosts(int host_ranks) {
    if (host_ranks == 0 || make_group) return host_ranks > 0;
    std::array<double, 2> numbers{static_cast<double>(host_ranks), -static_cast<double>(host_ranks)};
    all_reduce_values(world, Context::cpu(), numbers, ReduceOp::max);
    return numbers[0] == -numbers[1];
  }

  /// They have communicators of their own, in which nothing else waits for the other hosts.
  void cut_by_hosts(Group name, Group like) {
    const auto at = [](Group group) { return static_cast<size_t>(group); };
    if (by_name[at(name)] == by_name[at(like)] && over_hosts[at(like)]) {
      over_hosts[at(name)] = over_hosts[at(like)];
      return;
    }
    std::optional<Grid::Levels> levels = grid.levels(axes_of(name));
    if (!levels) return;
    Communicator& inside = make(std::move(levels->inside));
    over_hosts[at(name)] = OverHosts{&inside, &make(std::move(levels->across))};
  }

  /// Two for every pair of stages that are neighbours on a ring. All ranks make them together, pairs without a common
  /// stage at once.
  void make_channels() {
    const int stages = grid.size(Axis::pipeline);
    if (stages == 1) return;
    const std::vector<std::vector<int>> lines = grid.groups({Axis::pipeline});  // the ranks of each, by stage
    const int turns = stages == 2 ? 1 : stages % 2 == 0 ? 2 : 3;
    for (int turn = 0; turn < turns; ++turn)
      for (const bool up : {true, false}) {
        Partition partition;
        for (const std::vector<int>& line : lines)
          for (int stage = 0; stage < stages; ++stage) {
            const bool odd_one = stages % 2 == 1 && stage == stages - 1;
            if ((odd_one ? 2 : stage % 2) != turn) continue;
            std::vector<int> pair{line[static_cast<size_t>(stage)], line[static_cast<size_t>((stage + 1) % stages)]};
            std::sort(pair.begin(), pair.end());
            partition.push_back(std::move(pair));
          }
        make_channel(std::move(partition), up);
      }
  }

  void make_channel(Partition pairs, bool up) {
    const auto mine = std::find_if(pairs.begin(), pairs.end(), [&](const std::vector<int>& pair) {
      return std::find(pair.begin(), pair.end(), world.rank()) != pair.end();
    });
    const std::vector<int> ranks = mine == pairs.end() ? std::vector<int>{world.rank()} : *mine;
    auto group = make_group ? make_group(ranks) : world.split(ranks.front(), world.rank());
    if (ranks.size() == 1) return;
    const int low = grid.coordinate(ranks.front(), Axis::pipeline),
              high = grid.coordinate(ranks.back(), Axis::pipeline);
    channels.push_back({up ? low : high, up ? high : low, group.get()});
    made.emplace_back(std::move(pairs), std::move(group));
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
  if (groups->agree_on_hosts(sizes.host_ranks))
    for (const Group name : {Group::parameters, Group::expert_parameters})
      groups->cut_by_hosts(name, Group::parameters);
  groups->keep_among(sizes.secondary);
  groups->make_channels();
  groups_ = std::move(groups);
}

const Grid& Mesh::grid() const { return groups_->grid; }
Communicator& Mesh::world() const { return groups_->world; }
Communicator& Mesh::group(Group name) const { return *groups_->by_name[static_cast<size_t>(name)]; }
std::optional<Mesh::OverHosts> Mesh::over_hosts(Group name) const {
  return groups_->over_hosts[static_cast<size_t>(name)];
}
Communicator& Mesh::secondary() const { return *groups_->secondary; }
Communicator& Mesh::channel(int from, int to) const {
  const auto found = std::find_if(groups_->channels.begin(), groups_->channels.end(),
                                  [&](const Groups::Channel& each) { return each.from == from && each.to == to; });
  require(found != groups_->channels.end(), "there is no channel from pipeline stage {} to stage {} at stage {} of {}",
          from, to, coordinate(Axis::pipeline), grid().size(Axis::pipeline));
  return *found->ends;
}

Event Mesh::send(Tensor tensor, int to) const {
  Communicator& ends = channel(coordinate(Axis::pipeline), to);
  return ends.send(std::move(tensor), 1 - ends.rank());
}

Event Mesh::receive(Tensor tensor, int from) const {
  Communicator& ends = channel(from, coordinate(Axis::pipeline));
  return ends.recv(std::move(tensor), 1 - ends.rank());
}

Traffic Mesh::traffic() const {
  Traffic total = groups_->world.traffic();
  for (const auto& [ranks, group] : groups_->made) {
    add(total, group->traffic());
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
  const auto secondary_inside = [&] {
    return grid().inside_hosts(grid().neighbours(axes_of(Group::parameters), secondary().size()));
  };
  const auto axes_of_group = [&](const std::vector<int>& ranks, const Communicator* group = nullptr) {
    Axes axes = axes_of_ranks(ranks, Axis::tensor);
    // Experts number the same ranks anew: their groups may be parts of those along an axis of the first grid.
    if (grid().size(axes) != static_cast<int>(ranks.size())) axes = axes_of_ranks(ranks, Axis::expert);
    std::string text, where;
    for (size_t name = 0; name < kNumGroups; ++name)
      if (const auto& hosts = groups_->over_hosts[name]; hosts && (group == hosts->inside || group == hosts->across)) {
        axes = axes_of(static_cast<Group>(name));
        where = group == hosts->inside ? ", inside hosts" : ", between hosts";
        break;
      }
    if (where.empty() && group != nullptr && group == groups_->secondary && group != &this->group(Group::parameters)) {
      axes = axes_of(Group::parameters);
      where = fmt::format(", {} neighbours{}", group->size(), secondary_inside() ? " inside hosts" : "");
    }
    for (int i = 0; i < kNumAxes; ++i)
      if (const auto axis = static_cast<Axis>(i); axes.has(axis) && grid().size(axis) > 1)
        text += fmt::format("{}{}", text.empty() ? "" : " x ", name_of(axis));
    return text + where;
  };
  std::vector<GroupTraffic> all;
  for (const auto& [partition, group] : groups_->made) {
    const bool message =
        std::any_of(groups_->channels.begin(), groups_->channels.end(),
                    [ends = group.get()](const Groups::Channel& channel) { return channel.ends == ends; });
    if (!message) all.push_back({axes_of_group(partition.front(), group.get()), group->traffic()});
  }
  if (!groups_->channels.empty()) {
    GroupTraffic messages{"neighbouring stages", {}};
    for (const Groups::Channel& channel : groups_->channels) add(messages.traffic, channel.ends->traffic());
    all.push_back(std::move(messages));
  }
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
