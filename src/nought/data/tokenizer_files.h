// Readers of tokenizers' file formats. Each throws a one-line ConfigError or IoError that names the file.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "nought/data/text_tokenizer.h"
#include "nought/data/tokenizer.h"

namespace nought {

/// Reads Hugging Face's tokenizer.json.
std::unique_ptr<Tokenizer> read_tokenizer_json(const std::filesystem::path& file);
/// Reads GPT-2's pair of files: vocab.json, and merges.txt beside it.
std::unique_ptr<Tokenizer> read_vocab_and_merges(const std::filesystem::path& vocab);
/// Reads a .tiktoken file: lines of base64(bytes) and rank. Pattern and markers are those of OpenAI's encoding with
/// these tokens.
std::unique_ptr<Tokenizer> read_tiktoken(const std::filesystem::path& file);
/// Reads SentencePiece's model file, through its own library.
std::unique_ptr<Tokenizer> read_sentencepiece(const std::filesystem::path& file);

/// Sets pipeline.separator from the files beside the tokenizer (tokenizer_config.json, special_tokens_map.json), or
/// else from well-known names among its tokens. If there is neither, it stays unset.
void find_separator(const std::filesystem::path& folder, TextPipeline& pipeline);

/// Sets pipeline.name from the file's name and pipeline.fingerprint from its bytes.
void identify(const std::filesystem::path& file, std::string_view bytes, TextPipeline& pipeline);

}  // namespace nought
