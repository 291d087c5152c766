#include "nought/models/tensor_cuts.h"

#include <algorithm>
#include <cstdlib>

#include "nought/base/error.h"
#include "nought/base/math.h"

namespace nought {

namespace {

/// True if each of the ranks gets some, though the last of them may get fewer.
bool reaches_all(int64_t extent, int64_t ranks) { return (ranks - 1) * ceil_div(extent, ranks) < extent; }

std::string reason_not_to_cut_experts(const ExpertsConfig& experts, int64_t ranks) {
  const int64_t width = experts.intermediate_size, shared = experts.shared_intermediate_size;
  if (!reaches_all(width, ranks))
    return fmt::format("the last of them would hold none of the {} features of its experts", width);
  if (shared > 0 && !reaches_all(shared, ranks))
    return fmt::format("the last of them would hold none of the {} features of its shared expert", shared);
  return "";
}

}  // namespace

std::string reason_not_to_cut(const ModelConfig& config, int64_t ranks) {
  if (ranks == 1) return "";
  const int64_t heads = config.num_heads, kv_heads = config.num_kv_heads;
  if (heads % ranks != 0) return fmt::format("its {} attention heads do not divide", heads);
  const bool shares = kv_heads % ranks != 0 && ranks % kv_heads == 0 && config.head_dim % (ranks / kv_heads) == 0 &&
                      config.qkv_packing != QkvPacking::interleaved;
  if (kv_heads % ranks != 0 && !shares)
    return fmt::format("its {} key/value heads of {} do neither divide nor can be shared evenly", kv_heads,
                       config.head_dim);
  const bool dense = !config.experts || std::ranges::count(config.experts->layers, false) > 0;
  if (dense && !reaches_all(config.intermediate_size, ranks))
    return fmt::format("the last of them would hold none of the {} features of its MLPs", config.intermediate_size);
  if (config.delta && config.delta->shape.key_heads % ranks != 0)
    return fmt::format("the {} key heads of its delta rule do not divide", config.delta->shape.key_heads);
  if (config.short_conv && !reaches_all(config.hidden_size, ranks))
    return fmt::format("the last of them would hold none of the {} channels of its convolutions", config.hidden_size);
  if (!reaches_all(config.vocab_size, ranks))
    return fmt::format("the last of them would hold none of its {} tokens", config.vocab_size);
  return config.experts ? reason_not_to_cut_experts(*config.experts, ranks) : "";
}

void require_cuttable(const ModelConfig& config, int64_t ranks, std::optional<int64_t> of) {
  const std::string reason = reason_not_to_cut(config, ranks);
  if (reason.empty()) return;
  const int64_t all = of.value_or(ranks);
  int64_t nearest = 1;
  for (int64_t size = 2; size <= all; ++size)
    if (all % size == 0 && std::abs(size - ranks) < std::abs(nearest - ranks) &&
        reason_not_to_cut(config, size).empty())
      nearest = size;
  fail<ConfigError>(
      "tp_size = {}: {} ranks cannot share the matrices of a {} model: {}; the nearest size that can is {}", ranks,
      ranks, config.family, reason, nearest);
}

}  // namespace nought
