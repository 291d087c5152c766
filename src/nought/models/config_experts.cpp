#include "nought/models/config_experts.h"

#include "nought/models/config_common.h"

namespace nought {

namespace {

/// The number of experts, by the family's name for it or by another one: transformers 5 keeps one of them for each
/// family, and it is not always that of transformers 4.
int64_t read_expert_count(ConfigReader& reader, const ExpertDefaults& defaults) {
  const Json* known = nullptr;
  std::string name = defaults.count_key;
  for (const char* each : {defaults.count_key, "num_experts", "num_local_experts"}) {
    const Json* found = reader.value(each);
    if (!found) continue;
    require<ConfigError>(!known || *known == *found, "{}: {} and {} name the same number and differ", reader.source(),
                         name, each);
    known = found, name = each;
  }
  return reader.size(name, defaults.num_experts, kMaxWidth);
}

}  // namespace

ExpertsConfig read_experts(ConfigReader& reader, const ModelConfig& config, const ExpertDefaults& defaults) {
  ExpertsConfig experts;
  experts.num_experts = read_expert_count(reader, defaults);
  experts.intermediate_size = reader.size(defaults.width_key, defaults.intermediate_size, kMaxWidth);
  experts.rule.top_k = reader.size(defaults.choice_key, defaults.top_k, kMaxWidth);
  require<ConfigError>(experts.rule.top_k <= experts.num_experts, "{}: {} {} is more than the {} experts",
                       reader.source(), defaults.choice_key, experts.rule.top_k, experts.num_experts);
  experts.activation.activation = config.activation;
  experts.layers.assign(static_cast<size_t>(config.num_layers), true);
  return experts;
}

void read_auxiliary_loss(ConfigReader& reader, ExpertsConfig& experts, double coefficient) {
  experts.auxiliary_loss = reader.boolean("output_router_logits").value_or(false);
  experts.auxiliary_coefficient = reader.non_negative("router_aux_loss_coef", coefficient);
}

void write_auxiliary_loss(const ExpertsConfig& experts, OrderedJson& json) {
  json["output_router_logits"] = experts.auxiliary_loss;
  json["router_aux_loss_coef"] = experts.auxiliary_coefficient;
}

void note_jitter(ConfigReader& reader, ModelConfig& config) {
  if (reader.non_negative("router_jitter_noise", 0) > 0)
    config.notes.push_back("router_jitter_noise is set: routers see no noise");
}

}  // namespace nought
