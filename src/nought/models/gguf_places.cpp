#include "nought/models/gguf_places.h"

#include <cmath>

namespace nought {

GgufPlaces::GgufPlaces(const ModelConfig& config) : config_(config), architecture_(gguf_architecture(config)) {
  const WeightNames names = WeightNames::of(config);
  targets_[names.token_embedding] = {"token_embd"};
  targets_[names.final_norm] = {std::string(architecture_.final_norm)};
  targets_[names.head] = {"output"};
  if (config.positions == PositionKind::learned) targets_[names.position_embedding] = {"position_embd"};
  for (int64_t i = 0; i < config.num_layers; ++i) add_layer(i);
}

void GgufPlaces::add_layer(int64_t index) {
  const WeightNames::Layer layer = WeightNames::of(config_).layer(index);
  const std::string block = fmt::format("blk.{}.", index);
  const auto add = [&](const std::string& name, std::string_view target) {
    targets_[name] = {block + std::string(target)};
  };
  add(layer.attention_norm, "attn_norm");
  add(layer.mlp_norm, architecture_.mlp_norm);
  // Last, as the families without them give one of the names above to them.
  if (config_.norm_placement != NormPlacement::pre) {
    add(layer.attention_post_norm, "post_attention_norm");
    add(layer.mlp_post_norm, "post_ffw_norm");
  }
  for (size_t j = 0; j < layer.up.size(); ++j) add(layer.up[j], layer.up.size() == 1 || j == 1 ? "ffn_up" : "ffn_gate");
  add(layer.down, "ffn_down");
  if (config_.kind_of(index) == LayerKind::short_conv) {
    add(layer.conv_in, "shortconv.in_proj");
    add(layer.conv, "shortconv.conv");
    add(layer.conv_out, "shortconv.out_proj");
  } else if (config_.kind_of(index) == LayerKind::delta) {
    add_delta(layer, block);
  } else if (config_.latent) {
    add_latent(layer, block);
  } else {
    add_attention(layer, block);
  }
  if (config_.has_experts(index)) add_experts(layer, block);
}

void GgufPlaces::add_attention(const WeightNames::Layer& names, const std::string& block) {
  constexpr const char* kQkv[] = {"attn_q", "attn_k", "attn_v"};
  const bool pairs = architecture_.interleaved && !config_.rope.interleaved;
  const auto in_pairs = [head = config_.head_dim](const std::string& tensor, const Shape& shape) {
    return rows_in_pairs(tensor, shape, head);
  };
  const auto apart = [heads = config_.num_heads, head = config_.head_dim](const std::string& tensor,
                                                                          const Shape& shape) {
    return heads_apart(tensor, shape, heads, head);
  };
  for (size_t j = 0; j < names.qkv.size(); ++j) {
    Target target{block + (names.qkv.size() == 1 ? "attn_qkv" : kQkv[j])};
    if (names.qkv.size() == 3 && j < 2 && pairs) target.layout = in_pairs;
    if (config_.qkv_packing == QkvPacking::interleaved) target.layout = apart;
    targets_[names.qkv[j]] = target;
  }
  targets_[names.q_norm] = {block + "attn_q_norm"};
  targets_[names.k_norm] = {block + "attn_k_norm"};
  targets_[names.attention_out] = {block + "attn_output"};
  if (config_.attention_sinks) targets_[names.sinks] = {block + "attn_sinks.weight"};
}

void GgufPlaces::add_latent(const WeightNames::Layer& names, const std::string& block) {
  targets_[names.q_down] = {block + "attn_q_a"};
  targets_[names.q_latent_norm] = {block + "attn_q_a_norm"};
  targets_[names.q_up] = {block + (config_.latent->q_rank > 0 ? "attn_q_b" : "attn_q")};
  targets_[names.kv_down] = {block + "attn_kv_a_mqa"};
  targets_[names.kv_latent_norm] = {block + "attn_kv_a_norm"};
  targets_[names.attention_out] = {block + "attn_output"};
  const Layout apart = [heads = config_.num_heads, own = config_.latent->own_dim, block](const std::string&,
                                                                                         const Shape& shape) {
    return latent_apart(block + "attn_k_b.weight", block + "attn_v_b.weight", shape, heads, own);
  };
  targets_[names.kv_up] = {block + "attn_k_b", apart, /*outputs=*/false};
}

void GgufPlaces::add_delta(const WeightNames::Layer& names, const std::string& block) {
  const DeltaShape& delta = config_.delta->shape;
  const bool grouped = config_.delta->grouped, tiled = !grouped && delta.heads_of_key() > 1;
  const auto values = [&](int64_t before, int64_t head) -> Layout {
    if (!tiled) return {};
    return [delta, before, head](const std::string& tensor, const Shape& shape) {
      return value_heads_tiled(tensor, shape, delta, before, head);
    };
  };
  const Layout filter = [delta, tiled](const std::string& tensor, const Shape& shape) {
    const Shape taps{shape[0], shape[-1]};
    return tiled ? value_heads_tiled(tensor, taps, delta, 2 * delta.keys(), delta.value_dim) : in_order(tensor, taps);
  };
  const Layout columns = [delta](const std::string& tensor, const Shape& shape) {
    return value_columns_tiled(tensor, shape, delta);
  };
  targets_[names.delta_qkv] = {block + "attn_qkv", values(2 * delta.keys(), delta.value_dim)};
  if (grouped) {
    const Layout apart = [delta, block](const std::string&, const Shape& shape) {
      return key_heads_apart(block + "attn_qkv.weight", block + "attn_gate.weight", shape, delta);
    };
    targets_[names.delta_qkv] = {block + "attn_qkv", apart, /*outputs=*/false};
    targets_[names.delta_ba.front()] = {block + "ssm_ba"};
  } else {
    targets_[names.delta_z] = {block + "attn_gate", values(0, delta.value_dim)};
    targets_[names.delta_ba.front()] = {block + "ssm_beta", values(0, 1)};
    targets_[names.delta_ba.back()] = {block + "ssm_alpha", values(0, 1)};
  }
  targets_[names.delta_conv] = {block + "ssm_conv1d", filter, /*outputs=*/false};
  targets_[names.delta_norm] = {block + "ssm_norm"};
  targets_[names.delta_a_log] = {block + "ssm_a", values(0, 1)};
  targets_[names.delta_dt_bias] = {block + "ssm_dt.bias", values(0, 1)};
  targets_[names.delta_out] = {block + "ssm_out", tiled ? columns : Layout{}, /*outputs=*/!tiled};
}

void GgufPlaces::add_experts(const WeightNames::Layer& names, const std::string& block) {
  const ExpertsConfig& experts = *config_.experts;
  targets_[names.router] = {block + "ffn_gate_inp"};
  targets_[names.shared_gate] = {block + "ffn_gate_inp_shexp"};
  targets_[names.shared_expert + "gate_proj"] = {block + "ffn_gate_shexp"};
  targets_[names.shared_expert + "up_proj"] = {block + "ffn_up_shexp"};
  targets_[names.shared_expert + "down_proj"] = {block + "ffn_down_shexp"};
  const Layout flat = [](const std::string& tensor, const Shape& shape) { return in_order(tensor, {shape.numel()}); };
  targets_[names.choice_bias] = {block + "exp_probs_b.bias", flat};
  if (experts.storage != ExpertStorage::separate) return add_fused_experts(names.experts, block);
  for (int64_t expert = 0; expert < experts.num_experts; ++expert) {
    const std::string prefix = fmt::format("{}.{}.", names.experts, expert);
    for (const auto& [name, tensor] :
         {std::pair(names.expert_gate, "ffn_gate_exps"), std::pair(names.expert_up, "ffn_up_exps"),
          std::pair(names.expert_down, "ffn_down_exps")})
      targets_[prefix + name] = {.name = block + tensor, .expert = expert};
  }
}

void GgufPlaces::add_fused_experts(const std::string& prefix, const std::string& block) {
  const bool alternate = config_.experts->storage == ExpertStorage::fused;
  const auto apart = [&](const char* suffix, bool matrices) -> Layout {
    return [=](const std::string&, const Shape& shape) {
      return columns_apart(block + "ffn_gate_exps" + suffix, block + "ffn_up_exps" + suffix, shape, alternate,
                           matrices);
    };
  };
  targets_[prefix + ".gate_up_proj"] = {block + "ffn_gate_exps.weight", apart(".weight", true), false};
  targets_[prefix + ".gate_up_proj_bias"] = {block + "ffn_gate_exps.bias", apart(".bias", false), false};
  targets_[prefix + ".down_proj"] = {block + "ffn_down_exps.weight", turned, false};
  targets_[prefix + ".down_proj_bias"] = {block + "ffn_down_exps.bias"};
}

const GgufPlaces::Target* GgufPlaces::find(const Parameter& parameter, std::string& tensor) const {
  const std::string& name = parameter.name;
  if (const auto whole = targets_.find(name); whole != targets_.end()) {
    tensor = whole->second.name;
    return &whole->second;
  }
  const size_t dot = name.rfind('.');
  const auto found = targets_.find(name.substr(0, dot));
  require<ConfigError>(found != targets_.end(), "GGUF has no name for parameter {} of {}", name, config_.family);
  tensor = found->second.name + name.substr(dot);
  return &found->second;
}

GgufPlace GgufPlaces::of(const Parameter& parameter) const {
  std::string tensor;
  const Target& target = *find(parameter, tensor);
  const Shape& shape = parameter.placement.global;
  GgufPlace place;
  if (target.expert >= 0) {
    Shape stacked{config_.experts->num_experts};
    for (const int64_t extent : shape) stacked.push_back(extent);
    place = in_order(tensor, stacked, target.expert * shape.numel());
  } else if (config_.weight_layout == WeightLayout::in_out && shape.rank() == 2 &&
             parameter.role == ParameterRole::matrix) {
    place = turned(tensor, shape);
  } else if (parameter.role == ParameterRole::filter && !target.layout) {
    place = in_order(tensor, {shape[0], shape[-1]});
  } else {
    place = target.layout ? target.layout(tensor, shape) : in_order(tensor, shape);
  }
  change(parameter, tensor, place);
  return place;
}

void GgufPlaces::change(const Parameter& parameter, const std::string& tensor, GgufPlace& place) const {
  const auto is = [&](std::string_view name) { return tensor.ends_with(name); };
  if (parameter.role == ParameterRole::norm && !is("ssm_norm.weight"))
    place.offset = static_cast<float>(config_.norm_weight_offset);
  if (is("ssm_a")) {
    place.negative_exp = true;
    const int64_t count = parameter.placement.global.numel();
    if (place.in_order()) place.sheet = count, place.parts.front().axes = {{count, 1, 1}};
  }
  if (architecture_.own_scale || !(is("attn_q.weight") || is("attn_q.bias") || is("attn_q_norm.weight"))) return;
  // llama.cpp divides scores by the root of head_dim: what another scale asks for goes into the queries.
  const double scale = config_.attention_scale * std::sqrt(static_cast<double>(config_.head_dim));
  const bool scales = is("attn_q_norm.weight") == (config_.qk_norm != QkNorm::none);
  if (scales && std::abs(scale - 1) > 1e-9) place.factor = static_cast<float>(scale);
}

GgufPlace GgufPlaces::of_outputs(const Parameter& weight, int64_t width) const {
  std::string tensor;
  const Target& target = *find(weight, tensor);
  require<ConfigError>(
      target.outputs && target.expert < 0,
      "{}: llama.cpp keeps it cut or turned, and adapts it as another: --merge writes the model with it", weight.name);
  const Shape& shape = weight.placement.global;
  const bool in_out = config_.weight_layout == WeightLayout::in_out && weight.role == ParameterRole::matrix;
  const Shape rows{in_out ? shape[-1] : shape[0], width};
  GgufPlace place = target.layout ? target.layout(tensor, rows) : in_order(tensor, rows);
  change(weight, tensor, place);
  return place;
}

}  // namespace nought
