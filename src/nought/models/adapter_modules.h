// Which layers of a model an adapter's config chooses, as peft chooses them.
#pragma once

#include <string>
#include <vector>

#include "nought/models/adapter_config.h"
#include "nought/models/config.h"

namespace nought {

/// A linear layer that an adapter may add to.
struct AdaptableLayer {
  std::string name;  // "model.layers.0.self_attn.q_proj"
  int64_t in = 0, out = 0;
};
/// The adaptable layers of a model, in the order of its parameters: the projections of attention, MLPs and shared
/// experts.
std::vector<AdaptableLayer> adaptable_layers(const ModelConfig& config);

/// The layers that the config chooses, with their ranks and scales, and the weights that it trains whole. `place` names
/// the config in messages. ConfigError for a choice that matches nothing (with the nearest name) or what is not
/// supported, and for a rank above a matrix'.
ModelAdapter resolve_adapter(const AdapterConfig& adapter, const ModelConfig& config, const std::string& place);

/// The config of the model with what an adapter adds. A head and a table that are one tensor are two where the adapter
/// trains one of them whole.
ModelConfig with_adapter(ModelConfig config, ModelAdapter adapter);
/// The config of the model that merging an adapter gives: without it, and with a head of its own if the adapter changes
/// that or the table alone.
ModelConfig merged_config(ModelConfig config, const ModelAdapter& adapter);

/// The config as a file says it: the layers chosen by name, where the family or "all-linear" chose them. As peft does,
/// it writes many names as the shortest ends that tell them from other layers.
AdapterConfig with_named_layers(AdapterConfig adapter, const ModelConfig& config);

/// "q_proj x 2, rank 8, scale 2": the layers by the last part of their names, rank and scale, a line for each.
std::vector<std::string> describe_adapter(const ModelAdapter& adapter);

}  // namespace nought
