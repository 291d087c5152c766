// How the Units of a decoder's blocks are declared.
#include "nought/models/block_options.h"
#include "nought/models/decoder.h"

namespace nought {

std::vector<Unit*> Decoder::tiles_of(Unit& unit, const char* name, int64_t extent) {
  std::vector<Unit*> tiles;
  if (recompute_.unit_tiles <= 1) return tiles;
  const auto count = static_cast<int>(recompute_.unit_tiles);
  for (int index = 0; index < count; ++index) {
    const int64_t size = tile_of({extent}, 0, {}, index, count).size();
    require<ConfigError>((ranks_.size() - 1) * ceil_div(size, ranks_.size()) < size,
                         "training.memory_centric_tiling = {}: the last tile of {}.{} would have none of its {} "
                         "features, or not one for each rank; write a smaller number",
                         count, unit.name(), name, extent);
    tiles.push_back(&add_unit(fmt::format("{}.{}.{}", unit.name(), name, index)));
    tiles.back()->become_tile_of(unit);
  }
  return tiles;
}

Decoder::Block Decoder::make_block(int64_t index) {
  Block block;
  block.unit = &add_staged_unit(fmt::format("block.{}", index));
  Unit& unit = *block.unit;
  const WeightNames::Layer names = WeightNames::of(config_).layer(index);
  const BlockOptions options = block_options();
  const NormPlacement placement = config_.norm_placement;
  const bool pre = placement == NormPlacement::pre || placement == NormPlacement::pre_and_post,
             post = placement != NormPlacement::pre;
  const auto norm = [&](bool used, const std::string& name) {
    return used ? Norm(unit, name, options.norm()) : Norm();
  };
  block.local = config_.sliding_windows[static_cast<size_t>(index)] > 0 && config_.local_rope;
  block.rotated = config_.rotates(index);
  block.attention_norm = norm(pre && (index > 0 || config_.first_norm), names.attention_norm);
  if (config_.kind_of(index) == LayerKind::short_conv)
    block.conv.emplace(unit, options.short_conv(names));
  else if (config_.kind_of(index) == LayerKind::delta)
    block.delta.emplace(unit, options.delta(names));
  else
    block.attention = SelfAttention(unit, options.attention(names, index));
  block.attention_post_norm = norm(post, names.attention_post_norm);
  block.mlp_norm = norm(pre && !config_.shared_norm, names.mlp_norm);
  if (config_.has_experts(index)) {
    const int64_t width = config_.experts->intermediate_size, shared = config_.experts->shared_intermediate_size;
    // Where ranks have different experts, each tile would send all rows once more.
    const bool whole = ExpertRanks(all_ranks_).several() || config_.experts->storage == ExpertStorage::halves;
    std::vector<Unit*> tiles = whole ? std::vector<Unit*>{} : tiles_of(unit, "experts", width);
    std::vector<Unit*> shared_tiles = shared > 0 ? tiles_of(unit, "shared_expert", shared) : std::vector<Unit*>{};
    block.experts.emplace(unit, options.experts(names, std::move(tiles), std::move(shared_tiles)));
    block.router = num_routers_++;
  } else {
    block.mlp = Mlp(unit, options.mlp(config_.intermediate_size, names.up, names.down, config_.mlp_bias,
                                      tiles_of(unit, "mlp", config_.intermediate_size)));
  }
  block.mlp_post_norm = norm(post, names.mlp_post_norm);
  return block;
}

}  // namespace nought
