#include "nought/simulate/shape.h"

#include <algorithm>
#include <cmath>

#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/models/config.h"

namespace nought {

namespace {

double size_at(const Json& object, const char* key, const std::string& place) {
  require<ConfigError>(object.contains(key), "{}: {} is missing", place, key);
  const Json& value = object[key];
  require<ConfigError>(value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() > 0,
                       "{}: {} must be a number above 0, got {}", place, key, describe_json(value));
  return value.get<double>();
}

double size_or(const Json& object, const char* key, double fallback, const std::string& place) {
  const bool absent = !object.contains(key) || object[key].is_null() || (object[key].is_number() && object[key] == 0);
  return absent ? fallback : size_at(object, key, place);
}

}  // namespace

double ModelShape::attention_parameters() const {
  if (kv_rank == 0) return hidden * (query_width() + 2 * kv_heads * head_dim) + query_width() * hidden;
  const double queries = heads * (own_dim + shared_dim);
  const double down = hidden * (q_rank + kv_rank + shared_dim);
  return down + (q_rank > 0 ? q_rank : hidden) * queries + kv_rank * heads * (own_dim + value_dim) +
         heads * value_dim * hidden;
}

double ModelShape::parameters() const {
  const double dense = layers - expert_layers();
  return layers * attention_parameters() + dense * mlp_parameters() +
         expert_layers() * (shared_parameters() + expert_parameters()) + embedding_parameters() +
         (tied ? 0 : hidden * vocab);
}

double ModelShape::flops_per_token(double sequence, bool causal) const {
  const double idle = expert_layers() * expert_parameters() * (experts > 0 ? 1 - top_k / experts : 0);
  const double multiplied = parameters() - idle - hidden * positions - (tied ? 0 : hidden * vocab);
  const double scores = kv_rank > 0 ? heads * (own_dim + shared_dim) : query_width();
  return 6 * multiplied + (causal ? 3 : 6) * layers * (scores + value_width()) * sequence;
}

ModelShape shape_of(const ModelConfig& config) {
  ModelShape shape{.name = config.family};
  shape.layers = static_cast<double>(config.num_layers);
  shape.hidden = static_cast<double>(config.hidden_size);
  shape.heads = static_cast<double>(config.num_heads);
  shape.kv_heads = static_cast<double>(config.num_kv_heads);
  shape.head_dim = static_cast<double>(config.head_dim);
  shape.ffn = static_cast<double>(config.intermediate_size);
  shape.vocab = static_cast<double>(config.vocab_size);
  shape.gated = config.mlp == MlpKind::gated;
  shape.tied = config.tie_word_embeddings;
  if (config.positions == PositionKind::learned)
    shape.positions = static_cast<double>(config.max_positions + config.position_offset);
  if (config.latent) {
    shape.q_rank = static_cast<double>(config.latent->q_rank);
    shape.kv_rank = static_cast<double>(config.latent->kv_rank);
    shape.own_dim = static_cast<double>(config.latent->own_dim);
    shape.shared_dim = static_cast<double>(config.latent->shared_dim);
    shape.value_dim = static_cast<double>(config.latent->value_dim);
  }
  if (config.experts) {
    shape.experts = static_cast<double>(config.experts->num_experts);
    shape.top_k = static_cast<double>(config.experts->rule.top_k);
    shape.expert_ffn = static_cast<double>(config.experts->intermediate_size);
    shape.shared_ffn = static_cast<double>(config.experts->shared_intermediate_size);
    shape.dense_layers =
        static_cast<double>(std::count(config.experts->layers.begin(), config.experts->layers.end(), false));
  }
  return shape;
}

ModelShape shape_of(const Json& model, const std::string& name, const std::string& place) {
  require<ConfigError>(model.is_object(), "{}: expected an object with the model's sizes", place);
  ModelShape shape{.name = name};
  shape.layers = size_at(model, "layers", place);
  shape.hidden = size_at(model, "hidden", place);
  shape.heads = size_at(model, "heads", place);
  shape.kv_heads = size_or(model, "kv_heads", shape.heads, place);
  shape.head_dim = size_or(model, "head_dim", shape.hidden / shape.heads, place);
  shape.ffn = size_at(model, "ffn", place);
  shape.vocab = size_at(model, "vocab", place);
  shape.positions = size_or(model, "learned_positions", 0, place);
  shape.gated = model.value("gated_mlp", false);
  shape.tied = model.value("tied_embeddings", false);
  if (model.contains("mla") && model["mla"].is_object()) {
    const Json& latent = model["mla"];
    shape.q_rank = size_or(latent, "q_lora", 0, place + ".mla");
    shape.kv_rank = size_at(latent, "kv_lora", place + ".mla");
    shape.own_dim = size_at(latent, "nope", place + ".mla");
    shape.shared_dim = size_at(latent, "rope", place + ".mla");
    shape.value_dim = size_at(latent, "v", place + ".mla");
  }
  if (model.contains("moe") && model["moe"].is_object()) {
    const Json& experts = model["moe"];
    shape.experts = size_at(experts, "experts", place + ".moe");
    shape.top_k = size_at(experts, "top_k", place + ".moe");
    shape.expert_ffn = size_at(experts, "expert_ffn", place + ".moe");
    shape.shared_ffn = size_or(experts, "shared_experts", 0, place + ".moe") * shape.expert_ffn;
    shape.dense_layers = size_or(experts, "dense_layers", 0, place + ".moe");
  }
  return shape;
}

}  // namespace nought
