// gguf_config(): the ModelConfig that the metadata of a GGUF file mean.
//
// Design goals: the file becomes the config.json that it was made of, which ModelConfig reads; so there is one reader
// of options. What llama.cpp takes for granted of an architecture is written into it.
// Non-goals: architectures without a family here, which are refused by name.
#pragma once

#include "nought/io/gguf_file.h"
#include "nought/models/config.h"

namespace nought {

/// IoError, ConfigError for a file that is no model, or one of an architecture that is not read.
ModelConfig gguf_config(const GgufFile& file);

}  // namespace nought
