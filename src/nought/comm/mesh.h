// Mesh: the groups of ranks that this rank talks to, by what they are for.
//
// Design goals: whoever adds something up asks for the group by its name; groups of the same ranks are one
// communicator, and that of all ranks is the world's own, so a job with one axis makes no groups; a group of one is
// free. Non-goals: which ranks form a group (comm/grid does).
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nought/comm/communicator.h"
#include "nought/comm/grid.h"

namespace nought {

/// Copies share the groups. All ranks of the world make it together; the world outlives it.
class Mesh {
 public:
  /// A rank without others.
  Mesh();
  /// Every rank lies on the shard axis: ZeRO over all ranks.
  Mesh(Communicator& world);  // NOLINT(google-explicit-constructor): a world alone is a mesh
  /// ConfigError unless the grid has as many ranks as the world.
  Mesh(Communicator& world, const GridSizes& sizes);
  /// The one of these sizes, or the one with every rank on the shard axis.
  Mesh(Communicator& world, const std::optional<GridSizes>& sizes) : Mesh(sizes ? Mesh(world, *sizes) : Mesh(world)) {}
  /// A mesh with groups that `make_group` makes of their ranks, where the world cannot split.
  using MakeGroup = std::function<std::unique_ptr<Communicator>(const std::vector<int>& ranks)>;
  Mesh(Communicator& world, const GridSizes& sizes, const MakeGroup& make_group);

  const Grid& grid() const;
  Communicator& world() const;
  /// This rank's group of that name.
  Communicator& group(Group name) const;
  /// A group of ranks on several hosts, as many on each: rank h * inside.size() + i of it is rank i of `inside` on the
  /// h-th host, and rank h of `across`.
  struct OverHosts {
    Communicator* inside = nullptr;
    Communicator* across = nullptr;
  };
  /// This rank's group of that name by hosts. Nothing unless GridSizes::host_ranks is given, and its ranks lie so; for
  /// groups that share out the states of parameters.
  std::optional<OverHosts> over_hosts(Group name) const;
  /// The neighbours of this rank in Group::parameters, GridSizes::secondary of them: they keep what is gathered, so
  /// that later gathers ask nobody else. A group of one without.
  Communicator& secondary() const;
  /// What goes from one pipeline stage's ranks to the next one's, or to those of the one before: a channel of its own
  /// for each direction, so that no message waits for one that goes the other way. The stages form a ring, so that the
  /// last comes before the first. Messages of one channel arrive in the order in which they are sent. They are sent in
  /// place (Communicator::send). `to` and `from` are places on the pipeline axis. Error unless they are
  /// neighbours of this rank.
  Event send(Tensor tensor, int to) const;
  Event receive(Tensor tensor, int from) const;
  /// The channel itself, of which this rank is one end.
  Communicator& channel(int from, int to) const;
  /// Where this rank stands.
  int coordinate(Axis axis) const { return grid().coordinate(world().rank(), axis); }
  /// Sent by this rank in all groups.
  Traffic traffic() const;
  /// The traffic group by group: those that have sent nothing too, but for groups of one.
  struct GroupTraffic {
    std::string axes;  // along which its ranks differ: "tensor", "tensor x shard"
    Traffic traffic;
  };
  std::vector<GroupTraffic> traffic_by_axes() const;

 private:
  struct Groups;
  std::shared_ptr<const Groups> groups_;
};

/// values = their reduction over the ranks of the group, in rank order. Blocks; all ranks of the group call it.
void all_reduce_values(Communicator& group, const Context& context, std::span<double> values,
                       ReduceOp op = ReduceOp::sum);

/// Sums of values on the device, f64, over several groups: one collective for neighbours in the list whose groups have
/// the same ranks. Returns all sums, one list after the other, and then `others` as they are, if there are any: all
/// come to the host together. Blocks; all ranks of the world call it.
struct GroupTensor {
  Group group;
  Tensor values;
};
std::vector<double> sums_on_host(const Mesh& mesh, const Context& context, std::initializer_list<GroupTensor> sums,
                                 const Tensor& others = {});

}  // namespace nought
