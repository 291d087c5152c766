// Tokenizer: turns text into token ids and back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nought {

struct EncodeOptions {
  /// Whether a marker that the text spells, like <|endoftext|>, becomes its id. If not, it is text like any other, so
  /// that data cannot forge markers.
  bool specials = false;
  /// Whether the text begins here. Some tokenizers treat the first word of a text differently.
  bool at_start = true;
};

/// A marker in a text.
struct MarkerMatch {
  size_t begin, end;  // bytes of its spelling
  int32_t id;
  bool strips_left = false, strips_right = false;  // whether white space beside it belongs to it
};

/// Thread safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::string_view name() const = 0;
  /// One more than the largest id.
  virtual int64_t vocab_size() const = 0;
  /// The text of the tokens. Markers are spelt out. ConfigError for an id that the tokenizer does not have.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  /// The id that ends a document. ConfigError if the tokenizer's files name none.
  virtual int32_t separator() const = 0;
  virtual bool has_separator() const { return true; }
  /// The ids before every text, such as a beginning-of-text marker, and after it.
  virtual std::span<const int32_t> prefix() const { return {}; }
  virtual std::span<const int32_t> suffix() const { return {}; }
  /// The id of the token with this spelling. Markers are looked up first.
  virtual std::optional<int32_t> find(std::string_view token) const = 0;
  /// The first marker that the text spells at or behind `from`. The text is valid UTF-8.
  virtual std::optional<MarkerMatch> next_marker(std::string_view /*text*/, size_t /*from*/) const { return {}; }
  /// How many bytes of text a token has when it follows other text; 0 for markers and for ids without a token.
  virtual int64_t text_bytes(int32_t id) const = 0;
  /// The first place at or behind `from` where the text, which is valid UTF-8, may be cut; npos if none is known. The
  /// ids of the two parts, the second one encoded with at_start = false, are those of the whole.
  virtual size_t cut_point(std::string_view /*text*/, size_t /*from*/) const { return std::string_view::npos; }
  /// A number that differs between tokenizers that give any text different ids.
  virtual uint64_t fingerprint() const = 0;

  /// Appends the ids of `text`, without prefix() and suffix(). Bytes that are not UTF-8 become the tokens of these
  /// bytes, if the tokenizer has them.
  void encode(std::string_view text, std::vector<int32_t>& ids, EncodeOptions options = {}) const {
    append(text, options, ids);
  }
  std::vector<int32_t> encode(std::string_view text, EncodeOptions options = {}) const {
    std::vector<int32_t> ids;
    append(text, options, ids);
    return ids;
  }
  /// Append what stands before the text of a document, prefix(), and after it: suffix(), and separator() unless the
  /// suffix ends with it.
  void begin_document(std::vector<int32_t>& ids) const;
  void end_document(std::vector<int32_t>& ids) const;
  /// ConfigError if a model with that vocabulary lacks some of the ids; it says how to make room.
  void check_fits(int64_t model_vocab_size) const;

 protected:
  /// How many bytes longer the text of a token is when it follows other text: the first word may lack its space.
  int64_t lengthens_by(int32_t id) const;

 private:
  virtual void append(std::string_view text, EncodeOptions options, std::vector<int32_t>& ids) const = 0;
};

/// Decodes ids as they come. It returns whole characters, and decodes each id in the context of those before it.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  /// Adds an id. Returns the text that is complete now; "" while a character is incomplete.
  std::string push(int32_t id);
  /// The rest, when no id follows: the bytes of an incomplete character.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  std::vector<int32_t> ids_;  // ids whose text was not returned yet, after one earlier id as context
  size_t shown_ = 0;          // bytes of the text of ids_ that were returned already
};

/// Makes a tokenizer. The name is "bytes", or a path: a Hugging Face folder, tokenizer.json, vocab.json with merges.txt
/// beside it, BERT's vocab.txt, a .tiktoken file of r50k, cl100k or o200k, SentencePiece's .model, or a GGUF file. With
/// "bytes", each byte is its own id, and byte 0, which text does not contain, ends a document. What is no path may be a
/// model in the hub's cache. A tokenizer.json, and "bytes", may get special tokens beside their own. ConfigError and
/// IoError name the file.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name,
                                          std::span<const std::string> add_special_tokens = {});

/// True if make_tokenizer() can read this folder, or this GGUF file.
bool holds_tokenizer(const std::filesystem::path& folder);

}  // namespace nought
