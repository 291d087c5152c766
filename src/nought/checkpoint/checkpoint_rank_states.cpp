#include "nought/checkpoint/checkpoint_rank_states.h"

#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "nought/base/error.h"
#include "nought/base/text.h"
#include "nought/checkpoint/checkpoint_manifest.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

std::string tensor_name(const RankLocalTensor& state) { return "rank/" + state.name; }

Json mesh_json(const Grid& grid) {
  Json sizes = Json::object();
  for (int axis = 0; axis < kNumAxes; ++axis)
    sizes[std::string(name_of(static_cast<Axis>(axis)))] = grid.size(static_cast<Axis>(axis));
  return sizes;
}

/// "4 ranks (shard 2, tensor 2)".
std::string describe_mesh(const Json& sizes) {
  int64_t ranks = 1;
  std::vector<std::string> axes;
  for (const Axis axis :
       {Axis::replicate, Axis::shard, Axis::context, Axis::tensor, Axis::pipeline, Axis::expert, Axis::expert_tensor}) {
    const int64_t size = sizes.at(std::string(name_of(axis)));
    if (axis != Axis::expert && axis != Axis::expert_tensor) ranks *= size;
    if (size > 1) axes.push_back(fmt::format("{} {}", name_of(axis), size));
  }
  const std::string of = axes.empty() ? "" : fmt::format(" ({})", fmt::join(axes, ", "));
  return fmt::format("{} rank{}{}", ranks, ranks == 1 ? "" : "s", of);
}

/// "server_error, worker_error": what the states are, whatever they are of.
std::string kinds_of(const std::set<std::string>& names) {
  std::set<std::string> kinds;
  for (const std::string& name : names) kinds.insert(name.substr(0, name.find('/')));
  return fmt::format("{}", fmt::join(kinds, ", "));
}

std::vector<int64_t> extents_of(const Shape& shape) { return {shape.begin(), shape.end()}; }

/// Reads one state, if its entry has its shape and dtype.
bool read(const fs::path& checkpoint, const Json& entry, const Context& context, const Tensor& destination) {
  if (entry.at("shape") != Json(extents_of(destination.shape())) || entry.at("dtype") != name_of(destination.dtype()))
    return false;
  const SafetensorsFile file(checkpoint / entry.at("file").get<std::string>());
  const std::string tensor = entry.at("tensor");
  const TensorEntry& found = file.at(tensor);
  require<IoError>(xxh3_of(file.raw(found)) == entry.at("xxh3"),
                   "{}: {} is damaged (its checksum differs): resume from an earlier checkpoint", file.path().string(),
                   tensor);
  const Tensor host = destination.on_host() ? destination
                                            : Tensor::empty(*context.memory, destination.shape(), destination.dtype(),
                                                            destination.buffer()->category(), Pool::host);
  file.read(tensor, {0, destination.numel()}, host);
  if (!destination.on_host()) context.copy(host, destination);
  file.release(found);
  return true;
}

/// The line for what starts anew, and what is not taken up; "" if there is neither.
std::string describe(const fs::path& checkpoint, const std::set<std::string>& anew, const std::set<std::string>& left) {
  if (!anew.empty())
    return fmt::format("{} has no {} of this rank: the run goes on with new ones, and not as if it had never stopped",
                       checkpoint.string(), kinds_of(anew));
  if (!left.empty())
    return fmt::format("{} has {} of each rank, for which this run has no use: they are dropped", checkpoint.string(),
                       kinds_of(left));
  return "";
}

}  // namespace

std::vector<TensorSpec> specs_of(const std::vector<RankLocalTensor>& states) {
  std::vector<TensorSpec> specs;
  std::set<std::string> names;
  for (const RankLocalTensor& state : states) {
    require(names.insert(state.name).second, "two states of a rank are called {}", state.name);
    specs.push_back({tensor_name(state), state.tensor.dtype(), state.tensor.shape()});
  }
  return specs;
}

Json write_rank_states(const Context& context, int rank, const std::vector<RankLocalTensor>& states,
                       std::string_view file, SafetensorsWriter& writer) {
  Json entries = Json::array();
  for (const RankLocalTensor& state : states) {
    const Tensor values = context.on_host(state.tensor);
    writer.write(tensor_name(state), values);
    entries.push_back({{"rank", rank},
                       {"name", state.name},
                       {"shape", extents_of(values.shape())},
                       {"dtype", name_of(values.dtype())},
                       {"file", file},
                       {"tensor", tensor_name(state)},
                       {"xxh3", xxh3_of({values.raw(), static_cast<size_t>(values.bytes())})}});
  }
  return entries;
}

Json rank_states_json(const Mesh& mesh, Json entries) {
  return {{"mesh", mesh_json(mesh.grid())}, {"tensors", std::move(entries)}};
}

std::string fill_rank_states(const fs::path& checkpoint, const Json& rank_states, const Context& context,
                             const Mesh& mesh, const std::vector<RankLocalTensor>& states) {
  std::set<std::string> anew, left;
  for (const RankLocalTensor& state : states) anew.insert(state.name);
  if (rank_states.is_null()) return describe(checkpoint, anew, left);
  try {
    const Json now = mesh_json(mesh.grid()), &then = rank_states.at("mesh");
    if (then != now) {
      for (const Json& entry : rank_states.at("tensors")) left.insert(entry.at("name").get<std::string>());
      if (left.empty()) return describe(checkpoint, anew, left);
      return fmt::format("{} has {} of {}, and here are {}: they are dropped{}", checkpoint.string(), kinds_of(left),
                         describe_mesh(then), describe_mesh(now),
                         anew.empty() ? "" : fmt::format("; {} begin anew", kinds_of(anew)));
    }
    std::map<std::string, const Json*> mine;
    for (const Json& entry : rank_states.at("tensors"))
      if (entry.at("rank") == mesh.world().rank()) {
        mine[entry.at("name")] = &entry;
        left.insert(entry.at("name").get<std::string>());
      }
    for (const RankLocalTensor& state : states) {
      left.erase(state.name);
      const auto found = mine.find(state.name);
      if (found != mine.end() && read(checkpoint, *found->second, context, state.tensor)) anew.erase(state.name);
    }
  } catch (const Json::exception& error) {
    fail_damaged(checkpoint, error.what());
  }
  return describe(checkpoint, anew, left);
}

}  // namespace nought
