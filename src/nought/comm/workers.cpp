#include "nought/comm/workers.h"

#include <utility>
#include <vector>

#include "nought/comm/grid.h"
#include "nought/comm/traffic_sums.h"

namespace nought {

namespace {

constexpr Axes kInside{Axis::tensor, Axis::context, Axis::shard, Axis::pipeline};

}  // namespace

Workers::Workers(Communicator& world, const GridSizes& sizes, const Mesh::MakeGroup& make_group) {
  const Grid grid(sizes);
  require<ConfigError>(grid.ranks() == world.size(), "{} workers of {} ranks each are no job of {} ranks",
                       sizes.replicate, grid.size(kInside), world.size());
  count_ = grid.size(Axis::replicate), index_ = grid.coordinate(world.rank(), Axis::replicate);
  const std::vector<int> inside = grid.group(world.rank(), kInside), across = grid.group(world.rank(), Group::replicas);
  const auto group = [&](const std::vector<int>& ranks) {
    if (ranks.size() == 1) return make_self_communicator();
    return make_group ? make_group(ranks) : world.split(ranks.front(), world.rank());
  };
  // A group of one is split off by nobody, so all ranks split alike: all workers have equally many ranks.
  own_ = group(inside), peers_ = group(across), numbers_ = group(across);
  // What one rank does alone belongs to the timeline of the job, too. The world outlives this.
  if (Timeline* timeline = world.timeline(); timeline != nullptr && own_->timeline() == nullptr)
    own_->record(std::shared_ptr<Timeline>(std::shared_ptr<Timeline>(), timeline));
  GridSizes alone = sizes;
  alone.replicate = 1;
  const Mesh::MakeGroup make_inside = [&](const std::vector<int>& members) {
    std::vector<int> ranks;
    for (const int member : members) ranks.push_back(inside[static_cast<size_t>(member)]);
    return make_group(ranks);
  };
  mesh_ = std::make_unique<Mesh>(*own_, alone, make_group ? make_inside : Mesh::MakeGroup());
}

Traffic Workers::traffic() const {
  Traffic total = mesh_->traffic();
  add(total, peers_->traffic());
  add(total, numbers_->traffic());
  return total;
}

}  // namespace nought
