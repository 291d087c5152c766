// Tokenizer: text to token ids and back.
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
  /// Markers spelt out in the text, like <|endoftext|>, become their ids. Off, they are text like any other, so that
  /// data cannot forge them.
  bool specials = false;
  /// False if the text continues another: some tokenizers mark only the first word.
  bool at_start = true;
};

/// Thread safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::string_view name() const = 0;
  /// One more than the largest id.
  virtual int64_t vocab_size() const = 0;
  /// The bytes of the tokens, markers spelt out. ConfigError for an id that the tokenizer does not have.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  /// The id that ends a document. ConfigError if the tokenizer's files name none.
  virtual int32_t separator() const = 0;
  /// The ids that the tokenizer puts before every text (a beginning-of-text marker), and after it.
  virtual std::span<const int32_t> prefix() const { return {}; }
  virtual std::span<const int32_t> suffix() const { return {}; }
  /// The id of a token as it is spelt, markers first.
  virtual std::optional<int32_t> find(std::string_view token) const = 0;
  /// How many bytes of text an id stands for behind other text; 0 for markers, and for ids that no token has.
  virtual int64_t text_bytes(int32_t id) const = 0;
  /// The first place at or behind `from` where valid UTF-8 may be cut, so that its parts, the second one with at_start
  /// = false, have the ids of the whole; npos if none is known.
  virtual size_t cut_point(std::string_view /*text*/, size_t /*from*/) const { return std::string_view::npos; }
  /// Differs between tokenizers that give any text different ids.
  virtual uint64_t fingerprint() const = 0;

  /// Appends the ids of `text`, without prefix() and suffix(). Bytes that are not UTF-8 become the tokens of these
  /// bytes where the tokenizer has them.
  void encode(std::string_view text, std::vector<int32_t>& ids, EncodeOptions options = {}) const {
    append(text, options, ids);
  }
  std::vector<int32_t> encode(std::string_view text, EncodeOptions options = {}) const {
    std::vector<int32_t> ids;
    append(text, options, ids);
    return ids;
  }
  /// Appends a whole document: prefix(), the text, suffix(), and separator() unless that was the last of them.
  void encode_document(std::string_view text, std::vector<int32_t>& ids) const;
  /// What encode_document puts before and after the text.
  void begin_document(std::vector<int32_t>& ids) const;
  void end_document(std::vector<int32_t>& ids) const;
  /// ConfigError if a model with that vocabulary lacks some of the ids.
  void check_fits(int64_t model_vocab_size) const;

 protected:
  /// By how much an id lengthens what it decodes to: the first word of a text may lack its space.
  int64_t lengthens_by(int32_t id) const;

 private:
  virtual void append(std::string_view text, EncodeOptions options, std::vector<int32_t>& ids) const = 0;
};

/// Decodes ids as they come: gives whole characters, and what earlier ids make of later ones.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  /// The text that is certain after this id; "" while a character is incomplete.
  std::string push(int32_t id);
  /// What is left when no id follows: the bytes of a character that was never completed.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  std::vector<int32_t> ids_;  // since the last whole text, after `shown_` of an earlier one as context
  size_t shown_ = 0;          // bytes of what ids_ decode to
};

/// "bytes" (each byte is its own id, 0 to 255, and byte 0 ends a document: text does not contain it), or a path:
/// a Hugging Face folder, tokenizer.json, vocab.json with merges.txt beside it, a .tiktoken file of r50k, cl100k or
/// o200k, or SentencePiece's .model. ConfigError and IoError name the file.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name);

/// True if make_tokenizer reads this folder.
bool holds_tokenizer(const std::filesystem::path& folder);
/// Copies a tokenizer's files, those that say how a chat is written included, so that `to` holds it as `name` does.
/// Nothing for "bytes" and for files that are no folder's. IoError.
void copy_tokenizer(const std::string& name, const std::filesystem::path& to);

}  // namespace nought
