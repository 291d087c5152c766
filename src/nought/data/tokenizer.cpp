#include "nought/data/tokenizer.h"

#include <array>

#include "nought/base/error.h"
#include "nought/base/text.h"
#include "nought/tensor/random.h"

namespace nought {

namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr int64_t kVocabSize = 256;

  std::string_view name() const override { return "bytes"; }
  int64_t vocab_size() const override { return kVocabSize; }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    ids.reserve(ids.size() + text.size());
    for (char c : text) ids.push_back(static_cast<uint8_t>(c));
  }
  std::string decode(std::span<const int32_t> ids) const override {
    std::string text;
    text.reserve(ids.size());
    for (int32_t id : ids) {
      require<ConfigError>(0 <= id && id < kVocabSize, "the token {} is no byte; the model was not trained on bytes",
                           id);
      text += static_cast<char>(id);
    }
    return text;
  }
  int32_t separator() const override { return 0; }
  bool cuts_anywhere() const override { return true; }
  uint64_t fingerprint() const override { return stable_hash("bytes"); }
};

}  // namespace

void Tokenizer::check_fits(int64_t model_vocab_size) const {
  require<ConfigError>(model_vocab_size >= vocab_size(),
                       "the model's vocab_size is {}, the tokenizer \"{}\" needs at least {}", model_vocab_size, name(),
                       vocab_size());
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name) {
  if (name == "bytes") return std::make_unique<ByteTokenizer>();
  const std::array<std::string, 1> known{"bytes"};
  fail<ConfigError>("the tokenizer \"{}\" is not known, expected \"bytes\"{}", name, did_you_mean(name, known));
}

}  // namespace nought
