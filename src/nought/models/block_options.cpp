#include "nought/models/block_options.h"

#include <algorithm>
#include <utility>

#include "nought/models/adapter_experts.h"

namespace nought {

PackedHeads BlockOptions::heads() const {
  PackedHeads heads{.num_heads = config.num_heads / ranks.tensor.size(),
                    .num_kv_heads = std::max<int64_t>(config.num_kv_heads / ranks.tensor.size(), 1),
                    .head_dim = config.head_dim,
                    .interleaved = config.qkv_packing == QkvPacking::interleaved};
  if (config.latent) {
    heads.v_head_dim = config.latent->value_dim;
    heads.rope_offset = config.latent->own_dim;
  }
  return heads;
}

Norm::Options BlockOptions::norm() const {
  return {.kind = config.norm,
          .features = config.hidden_size,
          .eps = config.norm_eps,
          .weight_offset = config.norm_weight_offset,
          .bias = config.norm_bias,
          .slicing = ranks.slicing()};
}

Linear::Options BlockOptions::linear(int64_t in, std::vector<int64_t> out, std::vector<std::string> names, bool bias,
                                     double std) const {
  return {.in = in,
          .out = std::move(out),
          .names = std::move(names),
          .bias = bias,
          .layout = config.weight_layout,
          .std = std,
          .fp8 = fp8,
          .ranks = ranks.tensor,
          .slicing = ranks.slicing(),
          .adapter = config.adapter.adds_to_layers() ? &config.adapter : nullptr};
}

SelfAttention::Options BlockOptions::attention(const WeightNames::Layer& names, int64_t index) const {
  const int64_t hidden = config.hidden_size;
  const int64_t q = config.num_heads * config.head_dim, kv = config.num_kv_heads * config.head_dim;
  SelfAttention::Options options;
  options.heads = heads();
  options.scale = config.attention_scale_of(index);
  options.causal = config.causal;
  (config.chunked ? options.chunk : options.window) = config.sliding_windows[static_cast<size_t>(index)];
  options.softcap = config.attention_softcap;
  if (config.latent) {
    options.latent = latent(names);
  } else {
    const bool separate = config.qkv_packing == QkvPacking::separate;
    options.qkv =
        linear(hidden, separate ? std::vector{config.output_gate ? 2 * q : q, kv, kv} : std::vector{q + 2 * kv},
               names.qkv, config.qkv_bias, config.initializer_range);
    options.qkv.cut = LinearCut::outputs;
    if (config.qkv_packing == QkvPacking::fused) options.qkv.fused = {q, kv, kv};
  }
  options.out = linear(heads().out_width() * ranks.tensor.size(), {hidden}, {names.attention_out}, config.output_bias,
                       residual_std());
  options.out.cut = LinearCut::inputs;
  options.ranks = ranks.tensor;
  options.shared_heads = config.num_kv_heads < ranks.tensor.size();
  options.output_gate = config.output_gate;
  if (config.attention_sinks) options.sinks = names.sinks;
  options.sink_std = config.initializer_range;
  options.clip = config.qkv_clip;
  options.qk_norm = config.qk_norm == QkNorm::unweighted && !config.rotates(index) ? QkNorm::none : config.qk_norm;
  options.q_norm_features = config.qk_norm == QkNorm::whole ? q : config.head_dim;
  options.k_norm_features = config.qk_norm == QkNorm::whole ? kv : config.head_dim;
  options.q_norm = names.q_norm;
  options.k_norm = names.k_norm;
  options.norm_eps = config.norm_eps;
  options.norm_weight_offset = config.norm_weight_offset;
  return options;
}

ShortConvLayer::Options BlockOptions::short_conv(const WeightNames::Layer& names) const {
  const int64_t hidden = config.hidden_size;
  const bool bias = config.short_conv->bias;
  ShortConvLayer::Options options;
  options.in = linear(hidden, {3 * hidden}, {names.conv_in}, bias, config.initializer_range);
  options.in.cut = LinearCut::outputs;
  options.in.fused = {hidden, hidden, hidden};
  options.out = linear(hidden, {hidden}, {names.conv_out}, bias, residual_std());
  options.out.cut = LinearCut::inputs;
  options.weight = names.conv;
  options.channels = hidden;
  options.taps = config.short_conv->taps;
  options.bias = bias;
  options.std = config.initializer_range;
  options.ranks = ranks.tensor;
  return options;
}

DeltaNet::Options BlockOptions::delta(const WeightNames::Layer& names) const {
  const DeltaConfig& delta = *config.delta;
  const DeltaShape& shape = delta.shape;
  const int64_t hidden = config.hidden_size;
  const double std = config.initializer_range;
  DeltaNet::Options options;
  const int64_t projected = shape.width() + (delta.grouped ? shape.values() : 0);
  options.qkv = linear(hidden, {projected}, {names.delta_qkv}, false, std);
  if (!delta.grouped) {
    options.qkv.fused = {shape.keys(), shape.keys(), shape.values()};
    options.z = linear(hidden, {shape.values()}, {names.delta_z}, false, std);
  }
  const std::vector<int64_t> gates(names.delta_ba.size(), 2 * shape.value_heads / std::ssize(names.delta_ba));
  options.ba = linear(hidden, gates, names.delta_ba, false, std);
  options.out = linear(shape.values(), {hidden}, {names.delta_out}, false, residual_std());
  for (Linear::Options* each : {&options.qkv, &options.z, &options.ba}) each->cut = LinearCut::outputs;
  options.out.cut = LinearCut::inputs;
  options.grouped = delta.grouped;
  options.shape = shape;
  options.taps = delta.taps;
  options.conv = names.delta_conv;
  options.norm = names.delta_norm;
  options.a_log = names.delta_a_log;
  options.dt_bias = names.delta_dt_bias;
  options.norm_eps = config.norm_eps;
  options.std = std;
  options.ranks = ranks.tensor;
  return options;
}

LatentProjection::Options BlockOptions::latent(const WeightNames::Layer& names) const {
  const LatentConfig& latent = *config.latent;
  const int64_t hidden = config.hidden_size, heads = config.num_heads;
  const double std = config.initializer_range;
  LatentProjection::Options options;
  options.q_rank = latent.q_rank;
  options.kv_rank = latent.kv_rank;
  if (latent.q_rank > 0) options.q_down = linear(hidden, {latent.q_rank}, {names.q_down}, latent.down_bias, std);
  options.q_up =
      linear(latent.q_rank > 0 ? latent.q_rank : hidden, {heads * config.head_dim}, {names.q_up}, false, std);
  options.kv_down = linear(hidden, {latent.kv_rank + latent.shared_dim}, {names.kv_down}, latent.down_bias, std);
  options.kv_up = linear(latent.kv_rank, {heads * (latent.own_dim + latent.value_dim)}, {names.kv_up}, false, std);
  options.q_up.cut = options.kv_up.cut = LinearCut::outputs;  // heads divide: each rank has whole ones
  options.q_norm = names.q_latent_norm;
  options.kv_norm = names.kv_latent_norm;
  options.norm_eps = 1e-6;  // whatever the config's is: transformers builds these norms with their default
  return options;
}

Mlp::Options BlockOptions::mlp(int64_t width, std::vector<std::string> up, std::string down, bool bias,
                               std::vector<Unit*> tiles) const {
  const bool gated = config.mlp == MlpKind::gated;
  std::vector<int64_t> out{gated ? 2 * width : width};
  if (up.size() == 2) out = {width, width};
  Mlp::Options options;
  options.gated = gated;
  options.activation = config.activation;
  options.up = linear(config.hidden_size, out, std::move(up), bias, config.initializer_range);
  options.up.cut = LinearCut::outputs;
  if (gated && out.size() == 1) options.up.fused = {width, width};
  options.down = linear(width, {config.hidden_size}, {std::move(down)}, bias, residual_std());
  options.down.cut = LinearCut::inputs;
  options.recompute = recompute;
  options.tiles = std::move(tiles);
  return options;
}

Moe::Options BlockOptions::experts(const WeightNames::Layer& names, std::vector<Unit*> tiles,
                                   std::vector<Unit*> shared_tiles) const {
  const ExpertsConfig& experts = *config.experts;
  Moe::Options options;
  options.hidden = config.hidden_size;
  options.intermediate = experts.intermediate_size;
  options.num_experts = experts.num_experts;
  options.rule = experts.rule;
  options.router = names.router;
  options.router_bias = experts.router_bias;
  if (experts.choice_bias) options.choice_bias = names.choice_bias;
  options.choice_bias_row = experts.choice_bias_row;
  options.experts = names.experts;
  options.storage = experts.storage;
  options.gate = names.expert_gate;
  options.up = names.expert_up;
  options.down = names.expert_down;
  options.activation = experts.activation;
  options.scales_input = experts.scales_input;
  options.tiles = std::move(tiles);
  if (experts.shared_intermediate_size > 0)
    options.shared =
        mlp(experts.shared_intermediate_size, {names.shared_expert + "gate_proj", names.shared_expert + "up_proj"},
            names.shared_expert + "down_proj", false, std::move(shared_tiles));
  if (experts.shared_gate) options.shared_gate = names.shared_gate;
  options.capacity_factor = experts.capacity_factor;
  options.drop_tokens = experts.drop_tokens;
  options.quantized_dispatch = experts.quantized_dispatch;
  options.std = config.initializer_range;
  options.residual_std = residual_std();
  options.ranks = ExpertRanks(ranks);
  options.slicing = ranks.slicing();
  if (config.adapter.adds_to_layers()) {
    const ExpertModules modules = expert_modules(names);
    options.adapter = &config.adapter;
    options.adapted_router = modules.router, options.adapted_experts = modules.experts;
    options.adapted_shared_gate = modules.shared_gate;
  }
  return options;
}

}  // namespace nought
