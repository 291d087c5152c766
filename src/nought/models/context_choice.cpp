#include "nought/models/context_choice.h"

#include <algorithm>
#include <cstdlib>

#include "nought/base/error.h"
#include "nought/base/math.h"
#include "nought/parallel/context_heads.h"

namespace nought {

namespace {

/// The key/value heads that a rank has; several ranks have the same one if they are more.
int64_t kv_heads(const ModelConfig& config, int64_t tensor_ranks) {
  return std::max<int64_t>(config.num_kv_heads / tensor_ranks, 1);
}

/// Elements of a token in the keys and values that a rank computes.
int64_t key_width(const ModelConfig& config, int64_t tensor_ranks) {
  const int64_t value_dim = config.latent ? config.latent->value_dim : config.head_dim;
  return kv_heads(config, tensor_ranks) * (config.head_dim + value_dim);
}

/// Elements of a token in the widest activations of a layer: of an MLP, or of the experts that it chooses.
int64_t widest(const ModelConfig& config, int64_t tensor_ranks) {
  const int64_t pairs = config.mlp == MlpKind::gated ? 2 : 1;
  int64_t width = pairs * config.intermediate_size;
  if (config.experts) width = std::max(width, 2 * config.experts->rule.top_k * config.experts->intermediate_size);
  return width / tensor_ranks;
}

}  // namespace

bool can_share_heads(const ModelConfig& config, int64_t ranks, int64_t tensor_ranks) {
  return share_heads_evenly(config.num_heads / tensor_ranks, kv_heads(config, tensor_ranks), ranks);
}

ContextChoice choose_context_method(const ModelConfig& config, int64_t ranks, int64_t tensor_ranks,
                                    std::optional<ContextMethod> asked) {
  require<ConfigError>(
      ranks == 1 || !config.keeps_states(),
      "{} = {}: a {} model has layers that keep a state along a sequence, which ranks do not hand on to "
      "each other: use tp_size, or more ranks of the ZeRO stages",
      asked == ContextMethod::heads ? "sp_size" : "cp_size", ranks, config.family);
  const int64_t keys = ranks * key_width(config, tensor_ranks), most = widest(config, tensor_ranks);
  const bool gathers = keys <= most;
  if (asked && (asked != ContextMethod::gather || gathers)) return {*asked, "as asked"};
  if (asked) {
    const int64_t heads = kv_heads(config, tensor_ranks);
    const int64_t at_once = std::max<int64_t>(most * heads / keys, 1);
    const int64_t even = ceil_div(heads, ceil_div(heads, at_once));
    return {
        *asked,
        fmt::format("as asked, {} of {} key/value heads at a time, as all would be wider than its MLP", even, heads),
        even};
  }
  return {gathers ? ContextMethod::gather : ContextMethod::ring,
          fmt::format("auto: both ways send {} elements per token of a rank, layer and forward pass; all keys and "
                      "values are {}, {} than the {} of its MLP",
                      keys - keys / ranks, keys, gathers ? "no more" : "more", most)};
}

void require_heads_for(const ModelConfig& config, int64_t ranks, int64_t tensor_ranks, std::optional<int64_t> of) {
  if (can_share_heads(config, ranks, tensor_ranks)) return;
  const int64_t all = of.value_or(ranks);
  int64_t nearest = 1;
  for (int64_t size = 2; size <= all; ++size)
    if (all % size == 0 && std::abs(size - ranks) < std::abs(nearest - ranks) &&
        can_share_heads(config, size, tensor_ranks))
      nearest = size;
  fail<ConfigError>(
      "sp_size = {}: {} ranks cannot share out the {} query and {} key/value heads{} of a {} model; the nearest size "
      "that can is {}, and cp_size takes any",
      ranks, ranks, config.num_heads / tensor_ranks, kv_heads(config, tensor_ranks),
      tensor_ranks > 1 ? " of each rank of tp_size" : "", config.family, nearest);
}

}  // namespace nought
