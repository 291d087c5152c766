// The axes of the mesh: which ranks share matrices, and which read different samples.
#include <variant>

#include "nought/config/resolver.h"

namespace nought {

Candidate<int64_t> Resolver::tensor_size() const {
  const auto own = training("parallelism_config.tp_size", config_.training.parallelism_config.tp_size);
  const Setting<int64_t>& deepspeeds = ds_.tensor_parallel.autotp_size;
  if (!deepspeeds.given) return own;
  auto size = deepspeed("tensor_parallel.autotp_size", deepspeeds.value == 0 ? 1 : deepspeeds.value);
  if (own.given && own.value != size.value) fail_conflict(size, own);
  return size;
}

void Resolver::resolve_mesh() {
  const ParallelismArgs& args = config_.training.parallelism_config;
  const auto only_one = [&](const char* key, const Setting<int64_t>& setting, std::string_view what) {
    const auto size = training(std::string("parallelism_config.") + key, setting);
    require<ConfigError>(size.value == 1, "{} = {}: {} not available, the size must be 1", size.place, size.value,
                         what);
  };
  only_one("dp_replicate_size", args.dp_replicate_size, "replicas of a sharded model are");
  only_one("cp_size", args.cp_size, "context parallelism is");
  const auto tensor = tensor_size();
  const int64_t ranks = plan_.world_size;
  require_at_least<int64_t>(tensor, 1);
  if (ranks % tensor.value != 0) {
    int64_t nearest = std::min(tensor.value, ranks);
    while (ranks % nearest != 0) --nearest;
    fail<ConfigError>("{} = {}: {} rank{} cannot be divided by it; the nearest size that can is {}", tensor.place,
                      tensor.value, ranks, ranks == 1 ? "" : "s", nearest);
  }
  if (tensor.value > 1) note("parallelism_config.tp_size", tensor);
  const auto shard = training("parallelism_config.dp_shard_size", args.dp_shard_size);
  require<ConfigError>(!shard.given || shard.value * tensor.value == ranks,
                       "{} = {}: the product of the sizes of parallelism_config must be the number of ranks, {}; with "
                       "tp_size {} it is {}",
                       shard.place, shard.value, ranks, tensor.value, ranks / tensor.value);
  if (!shard.given && tensor.value == 1) return;
  const Candidate<int64_t> data{ranks / tensor.value, true, shard.place,
                                shard.given ? shard.reason : "world_size / tp_size"};
  plan_.mesh = GridSizes{.shard = static_cast<int>(note("parallelism_config.dp_shard_size", data)),
                         .tensor = static_cast<int>(tensor.value),
                         .expert_tensor = static_cast<int>(tensor.value)};
}

void Resolver::check_mesh() const {
  if (plan_.tensor_ranks() == 1) return;
  const auto tensor = tensor_size();
  require<ConfigError>(!std::holds_alternative<MuonOptions>(plan_.optimizer.method),
                       "{} = {}: Muon orthogonalises whole matrices, which are cut; use AdamW, or tp_size 1",
                       tensor.place, tensor.value);
}

}  // namespace nought
