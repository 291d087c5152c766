// Predictions of all stages, and a report of a small GPT-2 on 8 ranks, for tests of what shows it.
#pragma once

#include "nought/plan/table.h"

namespace nought::test {

/// The run at each ZeRO stage, 0 to 3.
inline std::vector<Prediction> predict_stages(const ModelConfig& config, const nought::Layout& layout) {
  std::vector<Prediction> predictions;
  for (int stage = 0; stage <= 3; ++stage) predictions.push_back(predict(config, layout.at_zero_stage(stage)));
  return predictions;
}

inline PlanReport small_report() {
  const ModelConfig config = ModelConfig::from_json({{"model_type", "gpt2"},
                                                     {"vocab_size", 50257},
                                                     {"n_embd", 768},
                                                     {"n_layer", 12},
                                                     {"n_head", 12},
                                                     {"n_positions", 1024}});
  const nought::Layout layout{.ranks = 8,
                              .micro_batch = 4,
                              .seq_length = 1024,
                              .accumulation = 2,
                              .sharding = {.dtype = DType::bf16, .gradient_dtype = DType::bf16}};
  return {.config = config,
          .predictions = predict_stages(config, layout),
          .recompute = predict_recompute(config, layout.at_zero_stage(2)),
          .budgets = {.device = int64_t{4} << 30}};
}

}  // namespace nought::test
