#include "nought/diagnose/replicas.h"

#include <algorithm>
#include <bit>
#include <map>

#include <fmt/format.h>
#include <xxhash.h>

#include "nought/base/host.h"
#include "nought/comm/first_rank.h"
#include "nought/zero/placement.h"

namespace nought {

namespace {

constexpr size_t kTensorsNamed = 3;  // in a message

/// The hash of a tensor, and what it is.
struct Hashed {
  std::string name;
  int64_t hash = 0;
};

int64_t hash_of(std::span<const std::byte> bytes) {
  return std::bit_cast<int64_t>(uint64_t{XXH3_64bits(bytes.data(), bytes.size())});
}

/// The group that shares out what this rank holds alike with others of `replicas`.
Group sharing(Group replicas) { return replicas == Group::holders ? Group::parameters : replicas; }

/// All that this rank holds alike with the others of the group. Group::replicas, of a sharded model: what no other
/// group compares, which are experts and the states that a stage shards.
std::vector<Hashed> hashes_of(ShardedModel& model, Group replicas) {
  const Context& context = model.context();
  std::vector<Hashed> all;
  const auto add = [&](std::string name, const Tensor& tensor) {
    const Tensor values = context.on_host(tensor);
    all.push_back({std::move(name), hash_of({values.raw(), static_cast<size_t>(values.bytes())})});
  };
  const bool of_shards = replicas == Group::replicas;
  const Group shared = of_shards ? Group::expert_parameters : sharing(replicas);
  const auto shares = [&](const Parameter& parameter) { return sharing_group(parameter.placement.axes()) == shared; };
  for (size_t unit = 0; unit < model.model().units().size(); ++unit)
    model.with_parts(unit, [&](const Parameter& parameter, const Tensor& values) {
      if (shares(parameter)) add(parameter.name, values);
    });
  const Policy policy = model.options().policy.for_ranks(model.mesh().group(shared).size());
  if (model.options().training && (of_shards || !policy.shard_optimizer))
    model.optimizer().for_each_kept([&](const Parameter& parameter, StateKind kind, const Tensor& values) {
      if (of_shards || shares(parameter)) add(fmt::format("{} of {}", name_of(kind), parameter.name), values);
    });
  const std::vector<double> state = model.model().state();
  if (replicas == Group::holders) all.push_back({"the model's state", hash_of(std::as_bytes(std::span(state)))});
  return all;
}

/// The hashes of all ranks, [ranks x tensors].
std::vector<int64_t> hashes_of_ranks(Communicator& ranks, const Context& context, const std::vector<Hashed>& mine) {
  std::vector<int64_t> hashes;
  for (const Hashed& each : mine) hashes.push_back(each.hash);
  const auto count = static_cast<int64_t>(hashes.size());
  const Tensor own = context.upload<int64_t>({count}, hashes, Category::communication);
  const Tensor all = context.empty({count * ranks.size()}, DType::i64, Category::communication);
  ranks.all_gather(own, all).wait();
  return context.to_host<int64_t>(all);
}

std::string some_names(const std::vector<Hashed>& tensors, const std::vector<size_t>& which) {
  std::vector<std::string> names;
  for (const size_t each : which)
    if (std::find(names.begin(), names.end(), tensors[each].name) == names.end()) names.push_back(tensors[each].name);
  const size_t more = names.size() - std::min(names.size(), kTensorsNamed);
  names.resize(names.size() - more);
  return fmt::format("{}{}", fmt::join(names, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}

}  // namespace

ReplicaDifference compare_replicas(std::span<const int64_t> hashes, int ranks) {
  const auto count = static_cast<size_t>(ranks), tensors = hashes.size() / count;
  ReplicaDifference result;
  std::vector<bool> differs(count);
  for (size_t tensor = 0; tensor < tensors; ++tensor) {
    std::map<int64_t, size_t> holders;
    for (size_t rank = 0; rank < count; ++rank) ++holders[hashes[rank * tensors + tensor]];
    if (holders.size() == 1) continue;
    result.tensors.push_back(tensor);
    const auto most = std::max_element(holders.begin(), holders.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    if (2 * most->second <= count) {
      result.majority = false;
      continue;
    }
    for (size_t rank = 0; rank < count; ++rank)
      if (hashes[rank * tensors + tensor] != most->first) differs[rank] = true;
  }
  for (size_t rank = 0; rank < count; ++rank)
    if (differs[rank]) result.ranks.push_back(static_cast<int>(rank));
  return result;
}

namespace {

/// How the ranks of this rank's group differ; the same on each of them, and "" if they do not.
std::string difference_in(ShardedModel& model, Group group, const std::filesystem::path& last_saved) {
  const Mesh& mesh = model.mesh();
  Communicator& replicas = mesh.group(group);
  if (replicas.size() == 1) return "";
  const std::vector<Hashed> mine = hashes_of(model, group);
  if (mine.empty()) return "";
  const ReplicaDifference difference =
      compare_replicas(hashes_of_ranks(replicas, model.context(), mine), replicas.size());
  if (difference.tensors.empty()) return "";
  const std::vector<std::string> hosts = texts_of_ranks(replicas, model.context(), host_name());
  const std::vector<int> numbers = mesh.grid().group(mesh.world().rank(), group);
  std::vector<std::string> who;
  for (const int rank : difference.ranks)
    who.push_back(fmt::format("rank {} on {}", numbers[static_cast<size_t>(rank)], hosts[static_cast<size_t>(rank)]));
  const std::string back = last_saved.empty() ? "no checkpoint was saved before: begin the run again"
                                              : fmt::format("go back with --resume {}", last_saved.string());
  const std::string what =
      who.empty() ? fmt::format("the {} ranks hold different bits, and no value is that of most", replicas.size())
                  : fmt::format("{} hold{} other bits than most of the {} ranks", fmt::join(who, ", "),
                                who.size() == 1 ? "s" : "", replicas.size());
  return fmt::format("{} in {} of {} tensors: {}; memory or processor of a host is faulty; {}{}", what,
                     difference.tensors.size(), mine.size(), some_names(mine, difference.tensors), back,
                     who.empty() ? "" : ", without that host");
}

}  // namespace

void require_same_replicas(ShardedModel& model, int64_t step, const std::filesystem::path& last_saved) {
  Communicator& all = model.mesh().group(Group::decisions);
  if (all.size() == 1) return;
  model.settle();
  std::string own = difference_in(model, Group::holders, last_saved);
  for (const Group group : {Group::expert_parameters, Group::replicas}) {
    const std::string of_group = difference_in(model, group, last_saved);
    if (own.empty()) own = of_group;
  }
  // Only the ranks that hold the same parts see a difference, and all end with it.
  for (const std::string& what : texts_of_ranks(all, model.context(), own))
    if (!what.empty()) fail<Error>("step {}: {}", step, what);
}

}  // namespace nought
