// The tokenizer that a GGUF file holds (tokenizer.ggml.*): byte-level BPE ("gpt2") or SentencePiece's ("llama").
//
// Design goals: a text gets the ids that llama.cpp gives it. The file becomes the tokenizer.json that it may have been
// made of, so that it is read, and exported, as any other.
// Non-goals: unigram ("t5") and WordPiece ("bert"); rules of cutting (tokenizer.ggml.pre) that are not in the table.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "nought/base/json.h"
#include "nought/io/gguf_file.h"
#include "nought/text/tokenizer.h"

namespace nought {

/// True if the file has a vocabulary; some have none ("no_vocab").
bool holds_gguf_vocabulary(const std::filesystem::path& file);
/// IoError, ConfigError for a kind of tokenizer, or a rule of cutting, that is not read.
std::unique_ptr<Tokenizer> read_gguf_tokenizer(const std::filesystem::path& file);
/// The content of a tokenizer.json. Its merges of SentencePiece's are in the order that Hugging Face's converter gives
/// them.
std::string gguf_tokenizer_json(const GgufFile& file);
/// The content of a tokenizer_config.json: the roles of tokens, and the chat template if the file has one.
OrderedJson gguf_tokenizer_config(const GgufFile& file);

}  // namespace nought
