// Tiles of Units: training.memory_centric_tiling, and what has none.
#include "nought/config/resolver.h"

namespace nought {

void Resolver::resolve_unit_tiles() {
  const Auto<int64_t>& key = config_.training.memory_centric_tiling;
  if (!key.given() && !key.automatic()) return;
  const auto tiles = section_value("training.memory_centric_tiling", key.value, true);
  if (key.automatic()) {
    require<ConfigError>(config_.training.device_memory.given || config_.training.host_memory.given,
                         "{} = \"auto\": write training.device_memory, which says what the run must fit into",
                         tiles.place);
    plan_.layout.recompute.unit_tiles = 0;
    plan_.resolved.push_back({"memory_centric_tiling", "auto", tiles.reason + ": as few as fit the memory budget"});
  } else {
    require_at_least<int64_t>(tiles, 1);
    plan_.layout.recompute.unit_tiles = note("memory_centric_tiling", tiles);
    if (tiles.value == 1) return;
  }
  require<ConfigError>(plan_.layout.zero_stage >= 2,
                       "{}: at ZeRO stage {} every rank has whole parameters and gradients of all Units; write "
                       "deepspeed.zero_optimization.stage = 3, or remove it",
                       tiles.place, plan_.layout.zero_stage);
  require<ConfigError>(
      plan_.layout.fp8.scaling == Fp8Scaling::none,
      "{}: training.fp8 keeps a scale for each matrix, and tiles are no whole ones; remove one of them", tiles.place);
  require<ConfigError>(!gives_direction(plan_.layout.sharding.optimizer.method),
                       "{}: Lamb and Muon update a matrix by what all of it is, and a tile is not; write another "
                       "training.optim, or remove it",
                       tiles.place);
  if (plan_.layout.token_ranks() == plan_.layout.replicas &&
      plan_.layout.sharding.offload_param.tier.pool == Pool::device)
    warn(fmt::format("{} has no effect: no ranks share out parameters and gradients, and no parameters are offloaded",
                     tiles.place));
}

}  // namespace nought
