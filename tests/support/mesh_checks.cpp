#include "support/mesh_checks.h"

#include "support/rank_values.h"

namespace nought::test {

std::vector<GridSizes> meshes_of(int ranks) {
  std::vector<GridSizes> meshes{{.shard = ranks}, {.replicate = ranks}, {.tensor = ranks}, {.pipeline = ranks}};
  meshes.push_back({.shard = ranks, .expert = ranks});
  if (ranks % 2 != 0) return meshes;
  meshes.push_back({.replicate = 2, .shard = ranks / 2});
  meshes.push_back({.shard = ranks / 2, .tensor = 2});
  meshes.push_back({.context = ranks / 2, .pipeline = 2});
  meshes.push_back({.shard = ranks / 2, .tensor = 2, .expert = ranks / 2});
  if (ranks % 4 != 0) return meshes;
  meshes.push_back({.shard = ranks / 4, .tensor = 2, .pipeline = 2, .expert = 2});
  meshes.push_back({.replicate = 2, .context = 2, .tensor = ranks / 4, .expert_tensor = 2});
  return meshes;
}

void check_mesh(Communicator& world, const Context& context, const GridSizes& sizes) {
  const Mesh mesh(world, sizes);
  for (int i = 0; i < kNumGroups; ++i) {
    const auto name = static_cast<Group>(i);
    const std::vector<int> members = mesh.grid().group(world.rank(), name);
    Communicator& group = mesh.group(name);
    require(
        group.size() == static_cast<int>(members.size()) && members[static_cast<size_t>(group.rank())] == world.rank(),
        "rank {} of {} is rank {} of {} in its group of {}", world.rank(), world.size(), group.rank(), group.size(),
        name_of(name));
    const Tensor x = tensor_of(context, values_of<float>(world.rank(), 1237));
    group.all_reduce(x).wait();
    expect_same(name_of(name), x, reduced_of<float>(members, 1237, ReduceOp::sum));
  }
}

}  // namespace nought::test
