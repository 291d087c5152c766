// What llama.cpp is told of a model's architecture: the keys of its hyperparameters.
#pragma once

#include <string>
#include <vector>

#include "nought/io/gguf_writer.h"
#include "nought/models/config.h"

namespace nought {

/// The families of ModelConfig that can be exported.
const std::vector<std::string>& gguf_families();
/// True where llama.cpp rotates neighbouring elements of a head, and Hugging Face its halves.
bool gguf_interleaves_rotation(const ModelConfig& config);
/// `notes` takes a line for everything that llama.cpp computes otherwise. ConfigError for what it cannot compute.
GgufMetadata gguf_metadata(const ModelConfig& config, GgufType type, const std::string& name,
                           std::vector<std::string>& notes);

}  // namespace nought
