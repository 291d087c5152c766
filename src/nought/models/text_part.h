// The text model of a multimodal folder, and the rest of such a folder, which exports carry through.
//
// Design goals: a folder of gemma3, llama4, mistral3, qwen2_5_vl, qwen3_vl or qwen3_5 is read as the decoder in its
// text_config. What is carried is told by the names of tensors alone: towers, projectors, and layers that predict later
// tokens.
// Non-goals: images; training of what is carried.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "nought/base/json_fwd.h"
#include "nought/models/config.h"

namespace nought {

/// The config.json of the text model in that of a multimodal folder; nothing if it is none. ConfigError for one whose
/// weights are quantised.
std::optional<Json> text_part(const Json& json, const std::string& source);
/// The model_types of such folders.
std::span<const std::string_view> multimodal_types();
/// Whether a config.json has layers that predict later tokens.
bool predicts_later_tokens(const Json& json);
/// Writes the config.json of all that a folder holds: ModelConfig::whole, with what training changes.
OrderedJson whole_config(const ModelConfig& config, DType dtype);

/// Other names under which a multimodal folder may have a tensor of its text model.
std::vector<std::string> multimodal_names(const std::string& name);
/// Whether a tensor is carried through, in a folder whose model has so many layers.
bool is_carried_name(std::string_view name, int64_t num_layers);

}  // namespace nought
