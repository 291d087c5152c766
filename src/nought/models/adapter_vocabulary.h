// What an adapter trains of the vocabulary beside products of low rank: rows of some tokens (peft's
// trainable_token_indices), and a table that stays the head (ensure_weight_tying).
#pragma once

#include <string>

#include "nought/models/adapter_config.h"
#include "nought/models/config.h"

namespace nought {

/// Adds it to what the config chooses of the model's layers. `place` names the config in messages. ConfigError.
void add_vocabulary_choices(const AdapterConfig& adapter, const ModelConfig& config, const std::string& place,
                            ModelAdapter& chosen);

}  // namespace nought
