#include "nought/models/gguf_model.h"

#include <cmath>
#include <unordered_map>

#include "nought/io/convert.h"
#include "nought/models/gguf_metadata.h"

namespace nought {

namespace {

/// A tensor of the checkpoint without its ".weight" or ".bias", in llama.cpp's words; `expert` of stacked experts.
struct Target {
  std::string name;
  int64_t expert = -1;
};
using Targets = std::unordered_map<std::string, Target>;

void add_expert_targets(const ModelConfig& config, const WeightNames::Layer& names, const std::string& block,
                        Targets& targets) {
  targets[names.router] = {block + "ffn_gate_inp"};
  targets[names.shared_gate] = {block + "ffn_gate_inp_shexp"};
  targets[names.shared_expert + "gate_proj"] = {block + "ffn_gate_shexp"};
  targets[names.shared_expert + "up_proj"] = {block + "ffn_up_shexp"};
  targets[names.shared_expert + "down_proj"] = {block + "ffn_down_shexp"};
  for (int64_t expert = 0; expert < config.experts->num_experts; ++expert) {
    const std::string prefix = fmt::format("{}.{}.", names.experts, expert);
    targets[prefix + names.expert_gate] = {block + "ffn_gate_exps", expert};
    targets[prefix + names.expert_up] = {block + "ffn_up_exps", expert};
    targets[prefix + names.expert_down] = {block + "ffn_down_exps", expert};
  }
}

Targets targets_of(const ModelConfig& config) {
  const WeightNames names = WeightNames::of(config);
  Targets targets{
      {names.token_embedding, {"token_embd"}}, {names.final_norm, {"output_norm"}}, {names.head, {"output"}}};
  if (config.positions == PositionKind::learned) targets[names.position_embedding] = {"position_embd"};
  for (int64_t i = 0; i < config.num_layers; ++i) {
    const WeightNames::Layer layer = names.layer(i);
    const std::string block = fmt::format("blk.{}.", i);
    const auto add = [&](const std::string& name, const char* target) { targets[name] = {block + target}; };
    add(layer.attention_norm, "attn_norm");
    add(layer.mlp_norm, "ffn_norm");
    // Last, as the families without them give one of the names above to them.
    if (config.norm_placement != NormPlacement::pre) {
      add(layer.attention_post_norm, "post_attention_norm");
      add(layer.mlp_post_norm, "post_ffw_norm");
    }
    constexpr const char* kQkv[] = {"attn_q", "attn_k", "attn_v"};
    for (size_t j = 0; j < layer.qkv.size(); ++j) add(layer.qkv[j], layer.qkv.size() == 1 ? "attn_qkv" : kQkv[j]);
    add(layer.q_norm, "attn_q_norm");
    add(layer.k_norm, "attn_k_norm");
    add(layer.attention_out, "attn_output");
    for (size_t j = 0; j < layer.up.size(); ++j)
      add(layer.up[j], layer.up.size() == 1 || j == 1 ? "ffn_up" : "ffn_gate");
    add(layer.down, "ffn_down");
    if (config.experts) add_expert_targets(config, layer, block, targets);
  }
  return targets;
}

}  // namespace

GgufModelWriter::GgufModelWriter(std::filesystem::path path, const Decoder& model, GgufType type,
                                 const std::string& name, const GgufMetadata& tokenizer)
    : config_(model.config()) {
  GgufMetadata metadata = gguf_metadata(config_, type, name, notes_);
  metadata.insert(metadata.end(), tokenizer.begin(), tokenizer.end());
  place_parameters(model, type);
  add_rope_factors();
  writer_.emplace(std::move(path), metadata, std::move(tensors_));
}

void GgufModelWriter::place_parameters(const Decoder& model, GgufType type) {
  const Targets targets = targets_of(config_);
  for (const auto& unit : model.units())
    for (const Parameter& parameter : unit->parameters()) {
      const size_t dot = parameter.name.rfind('.');
      const auto found = targets.find(parameter.name.substr(0, dot));
      require<ConfigError>(found != targets.end(), "GGUF has no name for parameter {} of {}", parameter.name,
                           config_.family);
      place(parameter, found->second.name + parameter.name.substr(dot), found->second.expert,
            found->second.expert < 0 ? 0 : config_.experts->num_experts, type);
    }
}

void GgufModelWriter::place(const Parameter& parameter, const std::string& target, int64_t expert, int64_t experts,
                            GgufType type) {
  const std::string stem = target.substr(0, target.rfind('.'));
  const Shape& shape = parameter.placement.global;
  const int64_t row = shape.rank() < 2 ? 1 : shape[-1];
  const bool transposed =
      config_.weight_layout == WeightLayout::in_out && shape.rank() == 2 && parameter.role == ParameterRole::matrix;
  const auto [entry, fresh] = tensor_of_.emplace(target, tensors_.size());
  if (fresh) {
    Shape stacked;
    if (experts > 0) stacked.push_back(experts);
    for (const int64_t extent : shape) stacked.push_back(extent);
    if (transposed) stacked = {shape[1], shape[0]};
    if (shape.rank() < 2 || parameter.role == ParameterRole::router || stem == "position_embd") type = GgufType::f32;
    if (type == GgufType::q8_0 && stacked[-1] % kQ8Block != 0) type = GgufType::f16;
    tensors_.push_back({target, type, stacked});
  }
  Place place{
      .tensor = entry->second, .first = expert < 0 ? 0 : expert * shape.numel(), .row = row, .transposed = transposed};
  if (config_.qkv_packing == QkvPacking::interleaved && stem.ends_with("attn_qkv"))
    place.heads_of_each = config_.num_heads;
  const bool is_query = stem.ends_with("attn_q"), is_key = stem.ends_with("attn_k");
  if (gguf_interleaves_rotation(config_) && (is_query || is_key)) place.head = config_.head_dim;
  if (parameter.role == ParameterRole::norm) place.offset = static_cast<float>(config_.norm_weight_offset);
  // llama.cpp divides scores by the root of head_dim: what another scale asks for goes into the queries.
  const double scale = config_.attention_scale * std::sqrt(static_cast<double>(config_.head_dim));
  const bool scales = config_.qk_norm == QkNorm::none ? is_query : stem.ends_with("attn_q_norm");
  if (scales && std::abs(scale - 1) > 1e-9) place.factor = static_cast<float>(scale);
  places_.emplace(parameter.name, place);
}

void GgufModelWriter::add_rope_factors() {
  const auto add = [&](const char* name, const std::vector<double>& factors) {
    rope_factors_.emplace_back(tensors_.size(), std::vector<float>(factors.begin(), factors.end()));
    tensors_.push_back({name, GgufType::f32, {static_cast<int64_t>(factors.size())}});
  };
  const RopeOptions& rope = config_.rope;
  if (rope.kind == RopeKind::longrope) {
    add("rope_factors_long.weight", rope.long_factors);
    add("rope_factors_short.weight", rope.short_factors);
  }
  if (rope.kind != RopeKind::llama3) return;
  RopeOptions plain = rope;
  plain.kind = RopeKind::plain;
  std::vector<double> factors = plain.frequencies(0);
  const std::vector<double> bent = rope.frequencies(0);
  for (size_t i = 0; i < factors.size(); ++i) factors[i] /= bent[i];
  add("rope_freqs.weight", factors);
}

int64_t GgufModelWriter::Place::target_row(int64_t row_index, int64_t head_dim) const {
  if (head > 0) {  // row (half, j) of a head becomes row (j, half)
    const int64_t in_head = row_index % head, half = in_head / (head / 2), j = in_head % (head / 2);
    return row_index - in_head + 2 * j + half;
  }
  const int64_t at = row_index / (3 * head_dim), part = row_index / head_dim % 3;
  return (part * heads_of_each + at) * head_dim + row_index % head_dim;
}

void GgufModelWriter::write_transposed(const std::string& name, const Place& place, Interval elements,
                                       const Tensor& source) {
  const Shape& target = writer_->tensors()[place.tensor].shape;
  Held& held = held_[name];
  held.values.resize(static_cast<size_t>(target.numel()));
  convert_elements(source.dtype(), source.raw(), DType::f32,
                   reinterpret_cast<std::byte*>(held.values.data() + elements.begin), elements.size());
  held.filled += elements.size();
  if (held.filled < target.numel()) return;
  const int64_t rows = target[0], columns = target[1];
  std::vector<float> turned(held.values.size());
  for (int64_t i = 0; i < columns; ++i)
    for (int64_t j = 0; j < rows; ++j)
      turned[static_cast<size_t>(j * columns + i)] = held.values[static_cast<size_t>(i * rows + j)];
  writer_->write(place.tensor, {0, target.numel()}, DType::f32, reinterpret_cast<const std::byte*>(turned.data()));
  held_.erase(name);
}

void GgufModelWriter::write(std::string_view name, Interval elements, const Tensor& source) {
  const auto found = places_.find(name);
  require<IoError>(found != places_.end(), "tensor \"{}\" has no place in the GGUF file", name);
  require<ShapeError>(source.numel() == elements.size(), "{} does not fill elements [{}, {}) of \"{}\"", source,
                      elements.begin, elements.end, name);
  const Place& place = found->second;
  if (place.transposed) return write_transposed(found->first, place, elements, source);
  const auto put = [&](int64_t first, int64_t begin, int64_t count) {
    const std::byte* from = source.raw() + (begin - elements.begin) * size_of(source.dtype());
    if (place.offset == 0 && place.factor == 1) {
      writer_->write(place.tensor, {first, first + count}, source.dtype(), from);
      return;
    }
    std::vector<float> values(static_cast<size_t>(count));
    auto* bytes = reinterpret_cast<std::byte*>(values.data());
    convert_elements(source.dtype(), from, DType::f32, bytes, count);
    for (float& value : values) value = (value + place.offset) * place.factor;
    writer_->write(place.tensor, {first, first + count}, DType::f32, bytes);
  };
  if (place.keeps_order()) return put(place.first + elements.begin, elements.begin, elements.size());
  for (int64_t begin = elements.begin; begin < elements.end;) {
    const int64_t row = begin / place.row, end = std::min(elements.end, (row + 1) * place.row);
    put(place.first + place.target_row(row, config_.head_dim) * place.row + begin % place.row, begin, end - begin);
    begin = end;
  }
}

void GgufModelWriter::finish() {
  for (const auto& [tensor, factors] : rope_factors_)
    writer_->write(tensor, {0, static_cast<int64_t>(factors.size())}, DType::f32,
                   reinterpret_cast<const std::byte*>(factors.data()));
  writer_->finish();
}

}  // namespace nought
