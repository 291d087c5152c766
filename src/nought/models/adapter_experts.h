// What adapters call the experts of a layer: transformers 5 holds them as two parameters of one module, and files of
// models still have a tensor for each expert.
#pragma once

#include <map>
#include <string>

#include "nought/models/adapter_config.h"
#include "nought/models/config.h"
#include "nought/models/names.h"

namespace nought {

inline constexpr std::string_view kGateUpOfExperts = ".gate_up_proj", kDownOfExperts = ".down_proj";

/// The names of modules, "model.layers.0.mlp.experts", "model.layers.0.mlp.gate".
struct ExpertModules {
  std::string experts, router, shared_gate;
};
ExpertModules expert_modules(const WeightNames::Layer& names);

/// True for models whose routers and experts "all-linear" means too, as raw parameters: those of some families.
bool all_linear_means_experts(const ModelConfig& config);
/// What "all-linear" means of such a model, as peft writes it: the parameters by name, and twice the rank and alpha for
/// gates and ups, which are two products.
AdapterConfig with_all_experts(AdapterConfig adapter);

/// What a tensor of one expert is of what an adapter adds to all of them: rows [begin, end) of the product of layer
/// `layer` of ModelAdapter.
struct ExpertPart {
  std::string layer;
  int64_t expert = 0, begin = 0, end = 0;
};
/// By the names of the model's tensors; of experts that have a tensor each.
std::map<std::string, ExpertPart> expert_parts(const ModelConfig& config);

}  // namespace nought
