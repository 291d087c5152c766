#include "nought/models/gguf_places.h"

#include <cmath>

#include "nought/models/gguf_metadata.h"
#include "nought/models/names.h"

namespace nought {

GgufPlaces::GgufPlaces(const ModelConfig& config) : config_(config) {
  const WeightNames names = WeightNames::of(config);
  targets_[names.token_embedding] = {"token_embd"};
  targets_[names.final_norm] = {"output_norm"};
  targets_[names.head] = {"output"};
  if (config.positions == PositionKind::learned) targets_[names.position_embedding] = {"position_embd"};
  for (int64_t i = 0; i < config.num_layers; ++i) add_layer(i);
}

void GgufPlaces::add_layer(int64_t index) {
  const WeightNames::Layer layer = WeightNames::of(config_).layer(index);
  const std::string block = fmt::format("blk.{}.", index);
  const auto add = [&](const std::string& name, const char* target) { targets_[name] = {block + target}; };
  add(layer.attention_norm, "attn_norm");
  add(layer.mlp_norm, "ffn_norm");
  // Last, as the families without them give one of the names above to them.
  if (config_.norm_placement != NormPlacement::pre) {
    add(layer.attention_post_norm, "post_attention_norm");
    add(layer.mlp_post_norm, "post_ffw_norm");
  }
  constexpr const char* kQkv[] = {"attn_q", "attn_k", "attn_v"};
  for (size_t j = 0; j < layer.qkv.size(); ++j) add(layer.qkv[j], layer.qkv.size() == 1 ? "attn_qkv" : kQkv[j]);
  add(layer.q_norm, "attn_q_norm");
  add(layer.k_norm, "attn_k_norm");
  add(layer.attention_out, "attn_output");
  for (size_t j = 0; j < layer.up.size(); ++j) add(layer.up[j], layer.up.size() == 1 || j == 1 ? "ffn_up" : "ffn_gate");
  add(layer.down, "ffn_down");
  if (config_.experts) add_experts(index);
}

void GgufPlaces::add_experts(int64_t index) {
  const WeightNames::Layer names = WeightNames::of(config_).layer(index);
  const std::string block = fmt::format("blk.{}.", index);
  targets_[names.router] = {block + "ffn_gate_inp"};
  targets_[names.shared_gate] = {block + "ffn_gate_inp_shexp"};
  targets_[names.shared_expert + "gate_proj"] = {block + "ffn_gate_shexp"};
  targets_[names.shared_expert + "up_proj"] = {block + "ffn_up_shexp"};
  targets_[names.shared_expert + "down_proj"] = {block + "ffn_down_shexp"};
  for (int64_t expert = 0; expert < config_.experts->num_experts; ++expert) {
    const std::string prefix = fmt::format("{}.{}.", names.experts, expert);
    targets_[prefix + names.expert_gate] = {block + "ffn_gate_exps", expert};
    targets_[prefix + names.expert_up] = {block + "ffn_up_exps", expert};
    targets_[prefix + names.expert_down] = {block + "ffn_down_exps", expert};
  }
}

GgufPlace GgufPlaces::of(const Parameter& parameter) const {
  const size_t dot = parameter.name.rfind('.');
  const auto found = targets_.find(parameter.name.substr(0, dot));
  require<ConfigError>(found != targets_.end(), "GGUF has no name for parameter {} of {}", parameter.name,
                       config_.family);
  const auto& [stem, expert] = found->second;
  const Shape& shape = parameter.placement.global;
  GgufPlace place{.tensor = stem + parameter.name.substr(dot),
                  .shape = {},
                  .first = expert < 0 ? 0 : expert * shape.numel(),
                  .row = shape.rank() < 2 ? 1 : shape[-1],
                  .head_dim = config_.head_dim};
  if (expert >= 0) place.shape.push_back(config_.experts->num_experts);
  for (const int64_t extent : shape) place.shape.push_back(extent);
  place.transposed =
      config_.weight_layout == WeightLayout::in_out && shape.rank() == 2 && parameter.role == ParameterRole::matrix;
  if (place.transposed) place.shape = {shape[1], shape[0]};
  if (config_.qkv_packing == QkvPacking::interleaved && stem.ends_with("attn_qkv"))
    place.heads_of_each = config_.num_heads;
  const bool is_query = stem.ends_with("attn_q"), is_key = stem.ends_with("attn_k");
  if (gguf_interleaves_rotation(config_) && (is_query || is_key)) place.head = config_.head_dim;
  if (parameter.role == ParameterRole::norm) place.offset = static_cast<float>(config_.norm_weight_offset);
  // llama.cpp divides scores by the root of head_dim: what another scale asks for goes into the queries.
  const double scale = config_.attention_scale * std::sqrt(static_cast<double>(config_.head_dim));
  const bool scales = config_.qk_norm == QkNorm::none ? is_query : stem.ends_with("attn_q_norm");
  if (scales && std::abs(scale - 1) > 1e-9) place.factor = static_cast<float>(scale);
  return place;
}

int64_t GgufPlace::target_row(int64_t row_index) const {
  if (head > 0) {  // row (half, j) of a head becomes row (j, half)
    const int64_t in_head = row_index % head, half = in_head / (head / 2), j = in_head % (head / 2);
    return row_index - in_head + 2 * j + half;
  }
  if (heads_of_each == 0) return row_index;
  const int64_t at = row_index / (3 * head_dim), part = row_index / head_dim % 3;
  return (part * heads_of_each + at) * head_dim + row_index % head_dim;
}

}  // namespace nought
