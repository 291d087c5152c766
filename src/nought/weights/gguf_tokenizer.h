// gguf_tokenizer(): a tokenizer as metadata of a GGUF file (tokenizer.ggml.*), from which llama.cpp makes its own.
//
// Design goals: llama.cpp gives a text the same ids as Nought, or the user is told why not.
// Non-goals: SentencePiece's .model without a tokenizer.json, and .tiktoken files; their models are exported without a
// vocabulary.
#pragma once

#include <string>
#include <vector>

#include "nought/io/gguf_writer.h"
#include "nought/models/config.h"

namespace nought {

/// The metadata of the tokenizer `name`, as make_tokenizer() takes it; none for "". The vocabulary is filled up to the
/// size of the model's. A line is added to `notes` for each thing that llama.cpp does differently. Throws as
/// make_tokenizer().
GgufMetadata gguf_tokenizer(const std::string& name, const ModelConfig& config, std::vector<std::string>& notes);

/// The name of a model for general.name. llama.cpp takes a model whose name contains "phi3" or "phi-3" for Microsoft's
/// and does not load it unless its vocabulary has those models' markers. Such a name is changed, with a note.
std::string gguf_name(std::string name, const GgufMetadata& tokenizer, std::vector<std::string>& notes);

}  // namespace nought
