// A tokenizer as the metadata of a GGUF file (tokenizer.ggml.*), for llama.cpp's own tokenizers.
//
// Design goals: llama.cpp gives a text the ids that Nought gives it, or the reason is said. Non-goals: SentencePiece's
// .model without a tokenizer.json, and .tiktoken files: their models are exported without a vocabulary.
#pragma once

#include <string>
#include <vector>

#include "nought/io/gguf_writer.h"
#include "nought/models/config.h"

namespace nought {

/// `name`: as make_tokenizer() takes it; "" for none. The vocabulary is filled up to the model's. `notes` takes a line
/// for what llama.cpp does otherwise. ConfigError, IoError as make_tokenizer().
GgufMetadata gguf_tokenizer(const std::string& name, const ModelConfig& config, std::vector<std::string>& notes);

}  // namespace nought
