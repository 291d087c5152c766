// Tokenizers as the content of a tokenizer.json: that of "bytes", and any with special tokens added.
#include <algorithm>

#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/io/files.h"
#include "nought/text/gguf_vocabulary.h"
#include "nought/text/json_view.h"
#include "nought/text/tokenizer_files.h"
#include "nought/text/vocabulary.h"

namespace nought {

namespace fs = std::filesystem;

OrderedJson special_token(const std::string& content, int64_t id) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

OrderedJson byte_level_step(bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

OrderedJson byte_level_json(const OrderedJson& added_tokens, const OrderedJson& pre_tokenizer, const OrderedJson& vocab,
                            const OrderedJson& merges) {
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added_tokens},
          {"normalizer", nullptr},
          {"pre_tokenizer", pre_tokenizer},
          {"post_processor", byte_level_step(true)},
          {"decoder", byte_level_step(true)},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", vocab},
            {"merges", merges}}}};
}

namespace {

/// Each byte is the token of its value; byte 0, which no text contains, is special.
std::string bytes_json() {
  Json vocab = Json::object();
  for (int byte = 1; byte < 256; ++byte) vocab[bytes_to_characters(std::string(1, static_cast<char>(byte)))] = byte;
  vocab[byte_separator()] = 0;
  const Json json = byte_level_json(OrderedJson::array({special_token(byte_separator(), 0)}), byte_level_step(true),
                                    vocab, OrderedJson::array());
  return json.dump(1) + "\n";
}

/// The content of the tokenizer.json that `name` stands for.
TokenizerJson content_of(const std::string& given) {
  static const std::string bytes = bytes_json();
  if (given == "bytes") return {given, std::nullopt, bytes};
  const std::string name = tokenizer_path(given);
  std::error_code error;
  if (is_gguf_path(name) && fs::is_regular_file(name, error)) {
    const GgufFile file(name);
    const auto end = file.integer("tokenizer.ggml.eos_token_id");
    return {name, std::nullopt, gguf_tokenizer_json(file), end};
  }
  const fs::path file = fs::is_directory(name, error) ? fs::path(name) / "tokenizer.json" : fs::path(name);
  require<ConfigError>(fs::is_regular_file(file, error) && file.extension() == ".json" &&
                           file.stem().string().find("vocab") == std::string::npos,
                       "data.add_special_tokens needs a tokenizer.json, {} has none: transformers' "
                       "AutoTokenizer.from_pretrained(...).save_pretrained(...) writes one",
                       name);
  return {file.string(), file.parent_path(), read_bytes(file)};
}

/// The id of a token in the model's vocabulary; nothing if it has none.
std::optional<int64_t> id_in_vocabulary(const Json& vocab, const std::string& token) {
  if (const auto found = vocab.find(token); found != vocab.end()) return found->get<int64_t>();
  if (vocab.is_array())  // a Unigram has tokens and scores
    for (size_t id = 0; id < vocab.size(); ++id)
      if (vocab[id].is_array() && !vocab[id].empty() && vocab[id][0] == token) return static_cast<int64_t>(id);
  return std::nullopt;
}

int64_t first_free_id(const Json& vocab, const Json& added) {
  int64_t free = vocab.is_array() ? static_cast<int64_t>(vocab.size()) : 0;
  if (vocab.is_object())
    for (const auto& [token, id] : vocab.items()) free = std::max(free, id.get<int64_t>() + 1);
  for (const Json& token : added) free = std::max(free, token.at("id").get<int64_t>() + 1);
  return free;
}

/// Adds what is not special yet. Returns whether anything is new.
bool add_to_json(Json& json, std::span<const std::string> tokens) {
  Json& added = json["added_tokens"];
  if (added.is_null()) added = Json::array();
  const Json& vocab = json.at("model").at("vocab");
  bool any = false;
  for (const std::string& token : tokens) {
    require<ConfigError>(!token.empty(), "data.add_special_tokens holds an empty token");
    const auto known =
        std::find_if(added.begin(), added.end(), [&](const Json& each) { return each.at("content") == token; });
    if (known != added.end() && known->value("special", false)) continue;
    any = true;
    const std::optional<int64_t> id = id_in_vocabulary(vocab, token);
    if (known != added.end()) {
      (*known)["special"] = true;
    } else {
      added.push_back(Json(special_token(token, id ? *id : first_free_id(vocab, added))));
    }
  }
  return any;
}

}  // namespace

TokenizerJson tokenizer_json_with(const std::string& name, std::span<const std::string> add_special_tokens) {
  TokenizerJson found = content_of(name);
  if (add_special_tokens.empty()) return found;
  Json json = parse_json(found.bytes, found.name);
  try {
    if (add_to_json(json, add_special_tokens)) found.bytes = json.dump(1) + "\n";
  } catch (const Json::exception& error) {
    fail<ConfigError>("{}: is no tokenizer.json: {}", found.name, error.what());
  }
  return found;
}

}  // namespace nought
