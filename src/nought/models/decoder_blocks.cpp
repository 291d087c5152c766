// How the parameters of a decoder's blocks are declared: sizes and names of each layer from the ModelConfig.
#include <algorithm>

#include "nought/models/adapter_experts.h"
#include "nought/models/decoder.h"

namespace nought {

PackedHeads Decoder::heads() const {
  PackedHeads heads{.num_heads = config_.num_heads / ranks_.size(),
                    .num_kv_heads = std::max<int64_t>(config_.num_kv_heads / ranks_.size(), 1),
                    .head_dim = config_.head_dim,
                    .interleaved = config_.qkv_packing == QkvPacking::interleaved};
  if (config_.latent) {
    heads.v_head_dim = config_.latent->value_dim;
    heads.rope_offset = config_.latent->own_dim;
  }
  return heads;
}

Norm::Options Decoder::norm_options() const {
  return {.kind = config_.norm,
          .features = config_.hidden_size,
          .eps = config_.norm_eps,
          .weight_offset = config_.norm_weight_offset,
          .slicing = all_ranks_.slicing()};
}

Linear::Options Decoder::linear_options(int64_t in, std::vector<int64_t> out, std::vector<std::string> names, bool bias,
                                        double std) const {
  return {.in = in,
          .out = std::move(out),
          .names = std::move(names),
          .bias = bias,
          .layout = config_.weight_layout,
          .std = std,
          .fp8 = fp8_,
          .ranks = ranks_,
          .slicing = all_ranks_.slicing(),
          .adapter = config_.adapter.layers.empty() ? nullptr : &config_.adapter};
}

SelfAttention::Options Decoder::attention_options(const WeightNames::Layer& names, int64_t index) const {
  const int64_t hidden = config_.hidden_size;
  const int64_t q = config_.num_heads * config_.head_dim, kv = config_.num_kv_heads * config_.head_dim;
  SelfAttention::Options options;
  options.heads = heads();
  options.scale = config_.attention_scale_of(index);
  options.window = config_.sliding_windows[static_cast<size_t>(index)];
  options.softcap = config_.attention_softcap;
  if (config_.latent) {
    options.latent = latent_options(names);
  } else {
    const bool separate = config_.qkv_packing == QkvPacking::separate;
    options.qkv = linear_options(hidden, separate ? std::vector{q, kv, kv} : std::vector{q + 2 * kv}, names.qkv,
                                 config_.qkv_bias, config_.initializer_range);
    options.qkv.cut = LinearCut::outputs;
    if (config_.qkv_packing == QkvPacking::fused) options.qkv.fused = {q, kv, kv};
  }
  options.out = linear_options(heads().out_width() * ranks_.size(), {hidden}, {names.attention_out},
                               config_.output_bias, residual_std());
  options.out.cut = LinearCut::inputs;
  options.ranks = ranks_;
  options.shared_heads = config_.num_kv_heads < ranks_.size();
  if (config_.attention_sinks) options.sinks = names.sinks;
  options.sink_std = config_.initializer_range;
  options.qk_norm = config_.qk_norm;
  options.q_norm_features = config_.qk_norm == QkNorm::whole ? q : config_.head_dim;
  options.k_norm_features = config_.qk_norm == QkNorm::whole ? kv : config_.head_dim;
  options.q_norm = names.q_norm;
  options.k_norm = names.k_norm;
  options.norm_eps = config_.norm_eps;
  options.norm_weight_offset = config_.norm_weight_offset;
  return options;
}

LatentProjection::Options Decoder::latent_options(const WeightNames::Layer& names) const {
  const LatentConfig& latent = *config_.latent;
  const int64_t hidden = config_.hidden_size, heads = config_.num_heads;
  const double std = config_.initializer_range;
  LatentProjection::Options options;
  options.q_rank = latent.q_rank;
  options.kv_rank = latent.kv_rank;
  if (latent.q_rank > 0)
    options.q_down = linear_options(hidden, {latent.q_rank}, {names.q_down}, latent.down_bias, std);
  options.q_up =
      linear_options(latent.q_rank > 0 ? latent.q_rank : hidden, {heads * config_.head_dim}, {names.q_up}, false, std);
  options.kv_down =
      linear_options(hidden, {latent.kv_rank + latent.shared_dim}, {names.kv_down}, latent.down_bias, std);
  options.kv_up =
      linear_options(latent.kv_rank, {heads * (latent.own_dim + latent.value_dim)}, {names.kv_up}, false, std);
  options.q_up.cut = options.kv_up.cut = LinearCut::outputs;  // heads divide: each rank has whole ones
  options.q_norm = names.q_latent_norm;
  options.kv_norm = names.kv_latent_norm;
  options.norm_eps = 1e-6;  // whatever the config's is: transformers builds these norms with their default
  return options;
}

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

Mlp::Options Decoder::mlp_options(int64_t width, std::vector<std::string> up, std::string down, bool bias,
                                  std::vector<Unit*> tiles) const {
  const bool gated = config_.mlp == MlpKind::gated;
  std::vector<int64_t> out{gated ? 2 * width : width};
  if (up.size() == 2) out = {width, width};
  Mlp::Options options;
  options.gated = gated;
  options.activation = config_.activation;
  options.up = linear_options(config_.hidden_size, out, std::move(up), bias, config_.initializer_range);
  options.up.cut = LinearCut::outputs;
  if (gated && out.size() == 1) options.up.fused = {width, width};
  options.down = linear_options(width, {config_.hidden_size}, {std::move(down)}, bias, residual_std());
  options.down.cut = LinearCut::inputs;
  options.recompute = recompute_;
  options.tiles = std::move(tiles);
  return options;
}

Moe::Options Decoder::expert_options(const WeightNames::Layer& names, std::vector<Unit*> tiles,
                                     std::vector<Unit*> shared_tiles) const {
  const ExpertsConfig& experts = *config_.experts;
  Moe::Options options;
  options.hidden = config_.hidden_size;
  options.intermediate = experts.intermediate_size;
  options.num_experts = experts.num_experts;
  options.rule = experts.rule;
  options.router = names.router;
  options.router_bias = experts.router_bias;
  if (experts.choice_bias) options.choice_bias = names.choice_bias;
  options.experts = names.experts;
  options.storage = experts.storage;
  options.gate = names.expert_gate;
  options.up = names.expert_up;
  options.down = names.expert_down;
  options.activation = experts.activation;
  options.tiles = std::move(tiles);
  if (experts.shared_intermediate_size > 0)
    options.shared = mlp_options(experts.shared_intermediate_size,
                                 {names.shared_expert + "gate_proj", names.shared_expert + "up_proj"},
                                 names.shared_expert + "down_proj", false, std::move(shared_tiles));
  if (experts.shared_gate) options.shared_gate = names.shared_gate;
  options.capacity_factor = experts.capacity_factor;
  options.drop_tokens = experts.drop_tokens;
  options.quantized_dispatch = experts.quantized_dispatch;
  options.std = config_.initializer_range;
  options.residual_std = residual_std();
  options.ranks = ExpertRanks(all_ranks_);
  options.slicing = all_ranks_.slicing();
  if (!config_.adapter.layers.empty()) {
    const ExpertModules modules = expert_modules(names);
    options.adapter = &config_.adapter;
    options.adapted_router = modules.router, options.adapted_experts = modules.experts;
    options.adapted_shared_gate = modules.shared_gate;
  }
  return options;
}

Decoder::Block Decoder::make_block(int64_t index) {
  Block block;
  block.unit = &add_staged_unit(fmt::format("block.{}", index));
  Unit& unit = *block.unit;
  const WeightNames::Layer names = WeightNames::of(config_).layer(index);
  const bool pre = config_.norm_placement != NormPlacement::post, post = config_.norm_placement != NormPlacement::pre;
  const auto norm = [&](bool used, const std::string& name) {
    return used ? Norm(unit, name, norm_options()) : Norm();
  };
  block.local = config_.sliding_windows[static_cast<size_t>(index)] > 0 && config_.local_rope;
  block.attention_norm = norm(pre, names.attention_norm);
  block.attention = SelfAttention(unit, attention_options(names, index));
  block.attention_post_norm = norm(post, names.attention_post_norm);
  block.mlp_norm = norm(pre, names.mlp_norm);
  if (config_.has_experts(index)) {
    const int64_t width = config_.experts->intermediate_size, shared = config_.experts->shared_intermediate_size;
    // Where ranks have different experts, each tile would send all rows once more.
    const bool exchanges = ExpertRanks(all_ranks_).several();
    std::vector<Unit*> tiles = exchanges ? std::vector<Unit*>{} : tiles_of(unit, "experts", width);
    std::vector<Unit*> shared_tiles = shared > 0 ? tiles_of(unit, "shared_expert", shared) : std::vector<Unit*>{};
    block.experts.emplace(unit, expert_options(names, std::move(tiles), std::move(shared_tiles)));
    block.router = num_routers_++;
  } else {
    block.mlp = Mlp(unit, mlp_options(config_.intermediate_size, names.up, names.down, config_.mlp_bias,
                                      tiles_of(unit, "mlp", config_.intermediate_size)));
  }
  block.mlp_post_norm = norm(post, names.mlp_post_norm);
  return block;
}

}  // namespace nought
