#include <sentencepiece_processor.h>

#include "nought/base/error.h"
#include "nought/base/text.h"
#include "nought/io/files.h"
#include "nought/tensor/random.h"
#include "nought/text/tokenizer_files.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(const fs::path& file) : name_(file.string()) {
    const std::string bytes = read_bytes(file);
    fingerprint_ = stable_hash(bytes);
    const auto status = processor_.LoadFromSerializedProto(bytes);
    require<ConfigError>(status.ok() && processor_.GetPieceSize() > 0, "{}: is no SentencePiece model: {}", name_,
                         status.ok() ? "it has no pieces" : one_line(status.ToString()));
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      if (processor_.IsControl(id))
        markers_.add({.content = processor_.IdToPiece(id), .id = id, .special = true, .strip_left = false});
    }
    if (processor_.bos_id() >= 0) prefix_ = {processor_.bos_id()};
  }

  std::string_view name() const override { return name_; }
  int64_t vocab_size() const override { return processor_.GetPieceSize(); }
  std::string decode(std::span<const int32_t> ids) const override {
    for (const int32_t id : ids)
      require<ConfigError>(0 <= id && id < processor_.GetPieceSize(),
                           "the tokenizer \"{}\" has no token {}; its ids are below {}", name_, id, vocab_size());
    std::string text;
    const auto status = processor_.Decode(std::vector<int>(ids.begin(), ids.end()), &text);
    require<ConfigError>(status.ok(), "{}: cannot decode: {}", name_, one_line(status.ToString()));
    return text;
  }
  int32_t separator() const override {
    require<ConfigError>(processor_.eos_id() >= 0, "the tokenizer \"{}\" has no token that ends a text", name_);
    return processor_.eos_id();
  }
  bool has_separator() const override { return processor_.eos_id() >= 0; }
  std::span<const int32_t> prefix() const override { return prefix_; }
  std::optional<int32_t> find(std::string_view token) const override {
    const int id = processor_.PieceToId(token);
    return processor_.IdToPiece(id) == token ? std::optional<int32_t>(id) : std::nullopt;
  }
  std::optional<MarkerMatch> next_marker(std::string_view text, size_t from) const override {
    return markers_.first(text, from, true, false);
  }
  int64_t text_bytes(int32_t id) const override {
    if (id < 0 || id >= processor_.GetPieceSize() || processor_.IsControl(id) || processor_.IsUnused(id)) return 0;
    return processor_.IsByte(id) ? 1 : lengthens_by(id);
  }
  uint64_t fingerprint() const override { return fingerprint_; }

 private:
  void append(std::string_view text, EncodeOptions options, std::vector<int32_t>& ids) const override {
    size_t done = 0;
    while (const auto match = options.specials ? markers_.next(text, done, true, false) : std::nullopt) {
      append_plain(text.substr(done, match->begin - done), ids);
      ids.push_back(match->id);
      done = match->end;
    }
    append_plain(text.substr(done), ids);
  }
  void append_plain(std::string_view text, std::vector<int32_t>& ids) const {
    std::vector<int> pieces;
    const auto status = processor_.Encode(text, &pieces);
    require<ConfigError>(status.ok(), "{}: cannot encode: {}", name_, one_line(status.ToString()));
    ids.insert(ids.end(), pieces.begin(), pieces.end());
  }

  std::string name_;
  sentencepiece::SentencePieceProcessor processor_;
  AddedTokens markers_;
  std::vector<int32_t> prefix_;
  uint64_t fingerprint_ = 0;
};

}  // namespace

std::unique_ptr<Tokenizer> read_sentencepiece(const fs::path& file) {
  return std::make_unique<SentencePieceTokenizer>(file);
}

}  // namespace nought
