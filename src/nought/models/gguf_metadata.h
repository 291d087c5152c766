// The metadata of a GGUF file that describe a model's architecture: the keys and values of its hyperparameters.
#pragma once

#include <string>
#include <vector>

#include "nought/io/gguf_writer.h"
#include "nought/models/config.h"
#include "nought/models/gguf_architectures.h"

namespace nought {

/// The metadata of a model. file_type: llama.cpp's number of what most tensors are (gguf_mixtures.h). A line is added
/// to `notes` for each thing that llama.cpp computes differently. ConfigError for a model that it cannot compute.
GgufMetadata gguf_metadata(const ModelConfig& config, uint32_t file_type, const std::string& name,
                           std::vector<std::string>& notes);

}  // namespace nought
