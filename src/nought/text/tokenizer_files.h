// Readers of tokenizers' file formats. Each throws a one-line ConfigError or IoError that names the file.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "nought/base/json_fwd.h"
#include "nought/text/text_tokenizer.h"
#include "nought/text/tokenizer.h"

namespace nought {

/// The path that the name of a tokenizer stands for: itself, or a snapshot in the hub's cache.
std::string tokenizer_path(const std::string& name);

/// The content of a tokenizer.json, and where it is from.
struct TokenizerJson {
  std::string name;                             // for messages
  std::optional<std::filesystem::path> folder;  // that names its tokens' roles; not given for "bytes"
  std::string bytes;
  std::optional<int64_t> separator = {};  // the id that ends a document, where no folder names it
};

/// The tokenizer.json of byte-level BPE.
OrderedJson byte_level_json(const OrderedJson& added_tokens, const OrderedJson& pre_tokenizer, const OrderedJson& vocab,
                            const OrderedJson& merges);
/// The step "ByteLevel". use_regex: it also cuts text into GPT-2's words.
OrderedJson byte_level_step(bool use_regex);
/// An entry of "added_tokens".
OrderedJson special_token(const std::string& content, int64_t id);

/// Reads Hugging Face's tokenizer.json. What export_tokenizer() writes for "bytes" is that tokenizer again.
std::unique_ptr<Tokenizer> read_tokenizer_json(const std::filesystem::path& file);
std::unique_ptr<Tokenizer> parse_tokenizer_json(const TokenizerJson& json);

/// The tokenizer.json of a tokenizer, as make_tokenizer() takes its name, with special tokens added behind all ids. A
/// token of the vocabulary becomes special; what is special already stays as it is. So the bytes differ only if
/// something is added. ConfigError for a tokenizer that is no tokenizer.json.
TokenizerJson tokenizer_json_with(const std::string& name, std::span<const std::string> add_special_tokens);
/// The spelling of the token that ends a document of bytes: byte 0.
inline std::string byte_separator() { return std::string(1, '\0'); }
/// Reads GPT-2's pair of files: vocab.json, and merges.txt beside it.
std::unique_ptr<Tokenizer> read_vocab_and_merges(const std::filesystem::path& vocab);
/// The tokenizer.json that BERT's vocab.txt amounts to, with what tokenizer_config.json beside it says.
OrderedJson wordpiece_json(const std::filesystem::path& vocab);
/// Reads BERT's vocab.txt.
std::unique_ptr<Tokenizer> read_vocab_txt(const std::filesystem::path& vocab);
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
/// The tokenizer "bytes".
std::unique_ptr<Tokenizer> make_byte_tokenizer();

}  // namespace nought
