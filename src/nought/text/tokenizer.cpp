#include "nought/text/tokenizer.h"

#include <algorithm>
#include <array>

#include "nought/base/error.h"
#include "nought/base/text.h"
#include "nought/io/files.h"
#include "nought/io/hub_cache.h"
#include "nought/tensor/random.h"
#include "nought/text/gguf_vocabulary.h"
#include "nought/text/tokenizer_files.h"
#include "nought/text/unicode.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr int64_t kVocabSize = 256;

  std::string_view name() const override { return "bytes"; }
  int64_t vocab_size() const override { return kVocabSize; }
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
  std::optional<int32_t> find(std::string_view token) const override {
    return token.size() == 1 ? std::optional<int32_t>(static_cast<uint8_t>(token[0])) : std::nullopt;
  }
  int64_t text_bytes(int32_t id) const override { return id == separator() ? 0 : 1; }
  size_t cut_point(std::string_view, size_t from) const override { return from; }
  uint64_t fingerprint() const override { return stable_hash("bytes"); }

 private:
  void append(std::string_view text, EncodeOptions, std::vector<int32_t>& ids) const override {
    ids.reserve(ids.size() + text.size());
    for (char c : text) ids.push_back(static_cast<uint8_t>(c));
  }
};

/// Each makes a folder one of a tokenizer; the first that is there is read.
constexpr const char* kTokenizerFiles[] = {"tokenizer.json", "vocab.json", "tokenizer.model", "vocab.txt"};

std::unique_ptr<Tokenizer> read_folder(const fs::path& folder) {
  std::error_code error;
  const auto holds = [&](const char* name) { return fs::is_regular_file(folder / name, error); };
  if (holds("tokenizer.json")) return read_tokenizer_json(folder / "tokenizer.json");
  if (holds("vocab.json")) return read_vocab_and_merges(folder / "vocab.json");
  if (holds("tokenizer.model")) return read_sentencepiece(folder / "tokenizer.model");
  if (holds("vocab.txt")) return read_vocab_txt(folder / "vocab.txt");
  fail<IoError>(
      "{}: has no tokenizer.json, no vocab.json with merges.txt, no tokenizer.model and no vocab.txt; the tokenizer of "
      "a model that "
      "was trained on bytes is called \"bytes\"",
      folder.string());
}

std::unique_ptr<Tokenizer> read_file(const fs::path& file) {
  if (file.extension() == ".tiktoken") return read_tiktoken(file);
  if (file.extension() == ".model") return read_sentencepiece(file);
  if (is_gguf_path(file)) return read_gguf_tokenizer(file);
  const bool json = file.extension() == ".json";
  if (json && file.stem().string().find("vocab") != std::string::npos) return read_vocab_and_merges(file);
  if (json) return read_tokenizer_json(file);
  if (file.filename() == "vocab.txt") return read_vocab_txt(file);
  fail<ConfigError>("{}: expected tokenizer.json, vocab.json, vocab.txt, a .tiktoken, a .model or a .gguf file",
                    file.string());
}

}  // namespace

void Tokenizer::begin_document(std::vector<int32_t>& ids) const {
  ids.insert(ids.end(), prefix().begin(), prefix().end());
}

void Tokenizer::end_document(std::vector<int32_t>& ids) const {
  ids.insert(ids.end(), suffix().begin(), suffix().end());
  if (suffix().empty() || suffix().back() != separator()) ids.push_back(separator());
}

void Tokenizer::check_fits(int64_t model_vocab_size) const {
  require<ConfigError>(model_vocab_size >= vocab_size(),
                       "the model's vocab_size is {}, the tokenizer \"{}\" needs at least {}: a run with "
                       "training.resize_vocab makes room",
                       model_vocab_size, name(), vocab_size());
}

int64_t Tokenizer::lengthens_by(int32_t id) const {
  const std::array<int32_t, 2> twice{id, id};
  return static_cast<int64_t>(decode(twice).size() - decode(std::span(twice).first(1)).size());
}

std::string StreamDecoder::push(int32_t id) {
  ids_.push_back(id);
  const std::string text = tokenizer_.decode(ids_);
  if (incomplete_utf8_tail(text) > 0) return "";
  std::string fresh = text.substr(std::min(shown_, text.size()));
  // The last id stays as context: what it looks like at the start of a text is known from then on.
  ids_.assign(1, id);
  shown_ = tokenizer_.decode(ids_).size();
  return fresh;
}

std::string StreamDecoder::finish() {
  const std::string text = tokenizer_.decode(ids_);
  const std::string rest = text.substr(std::min(shown_, text.size()));
  ids_.clear();
  shown_ = 0;
  return rest;
}

std::string tokenizer_path(const std::string& name) {
  std::error_code error;
  const auto snapshot = fs::exists(name, error) ? std::nullopt : hub_snapshot(name);
  return snapshot ? snapshot->string() : name;
}

std::unique_ptr<Tokenizer> make_byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name, std::span<const std::string> add_special_tokens) {
  if (!add_special_tokens.empty()) return parse_tokenizer_json(tokenizer_json_with(name, add_special_tokens));
  if (name == "bytes") return make_byte_tokenizer();
  std::error_code error;
  const std::string path = tokenizer_path(name);
  if (fs::is_directory(path, error)) return read_folder(path);
  if (fs::is_regular_file(path, error)) return read_file(path);
  const std::array<std::string, 1> known{"bytes"};
  fail<ConfigError>("the tokenizer \"{}\" is neither \"bytes\" nor a file or folder{}", name,
                    did_you_mean(name, known));
}

bool holds_tokenizer(const fs::path& folder) {
  std::error_code error;
  if (is_gguf_path(folder)) return holds_gguf_vocabulary(folder);
  return std::any_of(std::begin(kTokenizerFiles), std::end(kTokenizerFiles),
                     [&](const char* name) { return fs::is_regular_file(folder / name, error); });
}

void identify(const fs::path& file, std::string_view bytes, TextPipeline& pipeline) {
  pipeline.name = file.string();
  pipeline.fingerprint = stable_hash(bytes);
}

}  // namespace nought
