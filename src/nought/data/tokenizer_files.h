// The file formats of tokenizers. Each reader throws a one-line ConfigError or IoError that names the file.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "nought/data/text_tokenizer.h"
#include "nought/data/tokenizer.h"

namespace nought {

/// Hugging Face's tokenizer.json.
std::unique_ptr<Tokenizer> read_tokenizer_json(const std::filesystem::path& file);
/// GPT-2's pair: vocab.json, and merges.txt beside it.
std::unique_ptr<Tokenizer> read_vocab_and_merges(const std::filesystem::path& vocab);
/// Lines of base64(bytes) and rank. The pattern and the markers are those of OpenAI's encoding with these tokens.
std::unique_ptr<Tokenizer> read_tiktoken(const std::filesystem::path& file);
/// SentencePiece's own model file, through its own library.
std::unique_ptr<Tokenizer> read_sentencepiece(const std::filesystem::path& file);

/// Sets pipeline.separator from the files beside the tokenizer (tokenizer_config.json, special_tokens_map.json), else
/// from the well-known names among its tokens; leaves it unset if there is none.
void find_separator(const std::filesystem::path& folder, TextPipeline& pipeline);

/// pipeline.name from the file's, its fingerprint from its bytes.
void identify(const std::filesystem::path& file, std::string_view bytes, TextPipeline& pipeline);

}  // namespace nought
