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

namespace {

/// A message that a stage sends to its neighbour. All that are on the way at once are different.
std::vector<float> message_of(int from, int to, int64_t number) {
  const int64_t length = number % 16 == 15 ? 70'000 : 1 + number * 37 % 257;  // more than fits into a window at once
  std::vector<float> values = values_of<float>(from, length);
  for (float& value : values) value += static_cast<float>(1'000 * number + 100 * to);
  return values;
}

/// Sends what neighbours expect of this stage, up or down the ring.
void send_messages(const Mesh& mesh, const Context& context, int to, Interval numbers) {
  for (int64_t i = numbers.begin; i < numbers.end; ++i)
    mesh.send(tensor_of(context, message_of(mesh.coordinate(Axis::pipeline), to, i)), to);
}

struct Awaited {
  int from;
  int64_t number;
  Tensor values;
  Event arrival;
};

std::vector<Awaited> receive_messages(const Mesh& mesh, const Context& context, int from, Interval numbers) {
  std::vector<Awaited> all;
  for (int64_t i = numbers.begin; i < numbers.end; ++i) {
    const auto length = std::ssize(message_of(from, mesh.coordinate(Axis::pipeline), i));
    const Tensor values = context.zeros({length}, DType::f32);
    all.push_back({from, i, values, mesh.receive(values, from)});
  }
  return all;
}

void expect_arrived(const Mesh& mesh, const std::vector<Awaited>& messages) {
  for (const Awaited& each : messages) {
    each.arrival.wait();
    expect_same("a message between pipeline stages", each.values,
                message_of(each.from, mesh.coordinate(Axis::pipeline), each.number));
  }
}

void check_stages(Communicator& world, const Context& context, int stages) {
  const Mesh mesh(world, {.shard = world.size() / stages, .pipeline = stages});
  const int here = mesh.coordinate(Axis::pipeline), above = (here + 1) % stages, below = (here + stages - 1) % stages;
  // Every rank waits in both directions before anybody has sent.
  std::vector<Awaited> from_below = receive_messages(mesh, context, below, {0, 20});
  std::vector<Awaited> from_above = receive_messages(mesh, context, above, {0, 20});
  world.barrier().wait();
  send_messages(mesh, context, above, {0, 20});
  send_messages(mesh, context, below, {0, 20});
  expect_arrived(mesh, from_above);
  expect_arrived(mesh, from_below);
  // Everything is sent before anybody receives, and read in another order of the channels.
  send_messages(mesh, context, below, {20, 84});
  send_messages(mesh, context, above, {20, 84});
  world.barrier().wait();
  from_above = receive_messages(mesh, context, above, {20, 84});
  expect_arrived(mesh, from_above);
  from_below = receive_messages(mesh, context, below, {20, 84});
  expect_arrived(mesh, from_below);
  // A tensor may change when its send is done.
  from_below = receive_messages(mesh, context, below, {84, 85});
  const Tensor changed = tensor_of(context, message_of(here, above, 84));
  mesh.send(changed, above).wait();
  context.run(Fill{.x = changed, .value = -1});
  expect_arrived(mesh, from_below);
  world.barrier().wait();
}

}  // namespace

void check_channels(Communicator& world, const Context& context) {
  for (int stages = 2; stages <= world.size(); ++stages)
    if (world.size() % stages == 0) check_stages(world, context, stages);
}

}  // namespace nought::test
