// What families with mixtures of experts share: functions that read and write how many experts there are, how wide, and
// how tokens choose them.
#pragma once

#include "nought/base/json.h"
#include "nought/models/config.h"
#include "nought/models/config_reader.h"

namespace nought {

/// The defaults of a family with experts, and its names.
struct ExpertDefaults {
  int64_t num_experts, top_k, intermediate_size;
  double auxiliary_coefficient = 0.001;
  const char* count_key = "num_experts";
  const char* width_key = "moe_intermediate_size";
  const char* choice_key = "num_experts_per_tok";
};

/// How many experts, how wide, how many each token uses; all layers have them until said otherwise.
ExpertsConfig read_experts(ConfigReader& reader, const ModelConfig& config, const ExpertDefaults& defaults);

/// The loss that balances experts counts if output_router_logits, as in transformers.
void read_auxiliary_loss(ConfigReader& reader, ExpertsConfig& experts, double coefficient);
void write_auxiliary_loss(const ExpertsConfig& experts, OrderedJson& json);
void note_jitter(ConfigReader& reader, ModelConfig& config);

/// Experts as qwen2_moe and later: which layers have them, and whether weights are divided by their sum.
void read_qwen_moe(ConfigReader& reader, ModelConfig& config, const ExpertDefaults& defaults);
void write_qwen_moe(const ModelConfig& config, OrderedJson& json);

}  // namespace nought
