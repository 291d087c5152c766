// Tiles of Units: training.memory_centric_tiling, and what has none.
#include "nought/config/resolve_steps.h"

namespace nought {

void resolve_unit_tiles(Resolver& r) {
  const Auto<int64_t>& key = r.config.training.memory_centric_tiling;
  if (!key.given() && !key.automatic()) return;
  const auto tiles = r.section_value("training.memory_centric_tiling", key.value, true);
  if (key.automatic()) {
    require<ConfigError>(r.config.training.device_memory.given || r.config.training.host_memory.given,
                         "{} = \"auto\": write training.device_memory, which says what the run must fit into",
                         tiles.place);
    r.plan.layout.recompute.unit_tiles = 0;
    r.plan.resolved.push_back({"memory_centric_tiling", "auto", tiles.reason + ": as few as fit the memory budget"});
  } else {
    require_at_least<int64_t>(tiles, 1);
    r.plan.layout.recompute.unit_tiles = r.note("memory_centric_tiling", tiles);
    if (tiles.value == 1) return;
  }
  require<ConfigError>(r.plan.layout.zero_stage >= 2,
                       "{}: at ZeRO stage {} every rank has whole parameters and gradients of all Units; write "
                       "deepspeed.zero_optimization.stage = 3, or remove it",
                       tiles.place, r.plan.layout.zero_stage);
  require<ConfigError>(
      r.plan.layout.fp8.scaling == Fp8Scaling::none,
      "{}: training.fp8 keeps a scale for each matrix, and tiles are no whole ones; remove one of them", tiles.place);
  require<ConfigError>(!gives_direction(r.plan.layout.sharding.optimizer.method),
                       "{}: Lamb and Muon update a matrix by what all of it is, and a tile is not; write another "
                       "training.optim, or remove it",
                       tiles.place);
  if (r.plan.layout.token_ranks() == r.plan.layout.replicas &&
      r.plan.layout.sharding.offload_param.tier.pool == Pool::device)
    r.warn(fmt::format("{} has no effect: no ranks share out parameters and gradients, and no parameters are offloaded",
                       tiles.place));
}

}  // namespace nought
