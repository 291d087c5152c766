#include "nought/models/tensor_cuts.h"

#include "nought/base/error.h"
#include "nought/base/math.h"

namespace nought {

std::string reason_not_to_cut(const ModelConfig& config, int64_t ranks) {
  if (ranks == 1) return "";
  if (config.experts) return "experts are not cut yet";
  if (config.latent) return "latent attention is not cut yet";
  if (config.qk_norm == QkNorm::whole) return "norms over all heads of queries and keys are not cut yet";
  const int64_t heads = config.num_heads, kv_heads = config.num_kv_heads;
  if (heads % ranks != 0) return fmt::format("its {} attention heads do not divide", heads);
  const bool shares = kv_heads % ranks != 0 && ranks % kv_heads == 0 && config.head_dim % (ranks / kv_heads) == 0 &&
                      config.qkv_packing != QkvPacking::interleaved;
  if (kv_heads % ranks != 0 && !shares)
    return fmt::format("its {} key/value heads of {} do neither divide nor can be shared evenly", kv_heads,
                       config.head_dim);
  if (config.intermediate_size % ranks != 0)
    return fmt::format("its intermediate_size {} does not divide", config.intermediate_size);
  if ((ranks - 1) * ceil_div(config.vocab_size, ranks) >= config.vocab_size)
    return fmt::format("the last of them would hold none of its {} tokens", config.vocab_size);
  return "";
}

void require_cuttable(const ModelConfig& config, int64_t ranks) {
  const std::string reason = reason_not_to_cut(config, ranks);
  if (reason.empty()) return;
  int64_t nearest = ranks - 1;
  while (ranks % nearest != 0 || !reason_not_to_cut(config, nearest).empty()) --nearest;
  fail<ConfigError>(
      "tp_size = {}: {} ranks cannot share the matrices of a {} model: {}; the nearest size that can is {}", ranks,
      ranks, config.family, reason, nearest);
}

}  // namespace nought
