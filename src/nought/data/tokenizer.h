// Tokenizer: text to token ids and back.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nought {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::string_view name() const = 0;
  virtual int64_t vocab_size() const = 0;
  /// Appends the ids of `text`.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
  /// ConfigError for an id that the tokenizer does not have.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  /// The id that ends a document.
  virtual int32_t separator() const = 0;
  /// True if text may be encoded piece by piece, cut anywhere.
  virtual bool cuts_anywhere() const = 0;
  /// Differs between tokenizers that give any text different ids.
  virtual uint64_t fingerprint() const = 0;

  std::vector<int32_t> encode(std::string_view text) const {
    std::vector<int32_t> ids;
    encode(text, ids);
    return ids;
  }
  /// ConfigError if a model with that vocabulary lacks some of the ids.
  void check_fits(int64_t model_vocab_size) const;
};

/// "bytes": each byte is its own id, 0 to 255, and byte 0 ends a document (text does not contain it). ConfigError for
/// an unknown name.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name);

}  // namespace nought
