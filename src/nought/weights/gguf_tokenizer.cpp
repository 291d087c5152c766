#include "nought/weights/gguf_tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "nought/base/text.h"
#include "nought/chat/chat_template.h"
#include "nought/io/files.h"
#include "nought/io/gguf_file.h"
#include "nought/text/json_view.h"
#include "nought/text/pre_tokenizer.h"
#include "nought/text/tokenizer_files.h"
#include "nought/text/unicode.h"
#include "nought/text/vocabulary.h"

namespace nought {

namespace {

namespace fs = std::filesystem;

/// llama.cpp's numbers of token types.
constexpr int32_t kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6;

struct TokenTable {
  std::vector<std::string> texts;
  std::vector<int32_t> types;
  std::vector<float> scores;

  explicit TokenTable(int64_t count)
      : texts(static_cast<size_t>(count)), types(texts.size(), kUnused), scores(texts.size(), 0) {
    for (size_t i = 0; i < texts.size(); ++i) texts[i] = fmt::format("[PAD{}]", i);
  }
  void set(int64_t id, std::string text, int32_t type) {
    texts.at(static_cast<size_t>(id)) = std::move(text);
    types.at(static_cast<size_t>(id)) = type;
  }
};

// qwen2 differs from cl100k in numbers: digits stand alone.
std::string one_digit(std::string_view pattern) {
  std::string text(pattern);
  replace_all(text, "\\p{N}{1,3}", "\\p{N}");
  return text;
}

/// Every step of a pre-tokenizer, those of sequences one by one.
void flatten(const JsonView& json, const char* list, std::vector<JsonView>& steps) {
  if (json.is_null()) return;
  if (json["type"].string() != "Sequence") {
    steps.push_back(json);
    return;
  }
  for (const JsonView& step : json[list].list()) flatten(step, list, steps);
}

/// llama.cpp's name of the rule by which a byte-level BPE cuts text; "default" where it knows none.
std::string pre_tokenizer_name(const JsonView& json, bool ignore_merges, std::vector<std::string>& notes) {
  std::vector<JsonView> steps;
  flatten(json["pre_tokenizer"], "pretokenizers", steps);
  std::vector<std::string> patterns;
  bool prefix_space = false;
  for (const JsonView& step : steps) {
    if (step["type"].string() == "Split") {
      patterns.push_back(step["pattern"]["Regex"].string_or("?"));
    } else if (step["type"].string() == "ByteLevel") {
      if (step["use_regex"].boolean_or(true)) patterns.emplace_back(kGpt2Pattern);
      prefix_space = prefix_space || step["add_prefix_space"].boolean_or(false);
    } else {
      patterns.push_back(step["type"].string());
    }
  }
  if (prefix_space) notes.push_back("llama.cpp puts no space before a text, this tokenizer does (add_prefix_space)");
  if (patterns.size() == 1) {
    if (patterns[0] == kGpt2Pattern) return "gpt-2";
    if (patterns[0] == kCl100kPattern) return ignore_merges ? "llama-bpe" : "dbrx";
    if (patterns[0] == one_digit(kCl100kPattern)) return "qwen2";
    if (patterns[0] == kO200kPattern) return "gpt-4o";
  }
  notes.push_back("llama.cpp may cut text otherwise: its pre-tokenizer for this pattern is not known");
  return "default";
}

std::vector<std::string> merges_of(const JsonView& model) {
  std::vector<std::string> merges;
  for (const JsonView& merge : model["merges"].list()) {
    if (!merge.is_list()) {
      merges.push_back(merge.string());
      continue;
    }
    const std::vector<JsonView> pair = merge.list();
    merge.check(pair.size() == 2, "expected two tokens, found {}", pair.size());
    merges.push_back(fmt::format("{} {}", pair[0].string(), pair[1].string()));
  }
  return merges;
}

void set_checked(const JsonView& place, TokenTable& tokens, int64_t id, std::string text, int32_t type) {
  place.check(0 <= id && id < static_cast<int64_t>(tokens.texts.size()), "the token \"{}\" has id {}, the model has {}",
              text, id, tokens.texts.size());
  tokens.set(id, std::move(text), type);
}

/// Earlier merges go before later ones, as SentencePiece's scores have it.
void score_by_merges(const std::vector<std::string>& merges, const Json& vocab, TokenTable& tokens) {
  for (float& score : tokens.scores) score = -static_cast<float>(merges.size());
  for (size_t rank = merges.size(); rank-- > 0;) {
    std::string merged = merges[rank];
    merged.erase(merged.find(' '), 1);
    if (const auto found = vocab.find(merged); found != vocab.end())
      tokens.scores.at(found->get<size_t>()) = -static_cast<float>(rank);
  }
}

/// The spelling of a token. llama.cpp's strings end at a byte 0: the token of that byte is written as all bytes are.
std::string spelling_of(const std::string& token) {
  return token == byte_separator() ? bytes_to_characters(token) : token;
}

/// A BPE: byte-level ones are GPT-2's, those with byte fallback are SentencePiece's.
GgufMetadata read_bpe_model(const JsonView& json, TokenTable& tokens, std::vector<std::string>& notes) {
  const JsonView model = json["model"];
  const Json& vocab = model["vocab"].json();
  const std::vector<std::string> merges = merges_of(model);
  const bool sentencepiece = model["byte_fallback"].boolean_or(false);
  const std::string unknown = model["unk_token"].string_or("");
  for (const auto& [text, id] : vocab.items()) {
    const bool is_byte = sentencepiece && byte_of_token(text).has_value();
    set_checked(model["vocab"], tokens, JsonView(id, model.place()).integer(), spelling_of(text),
                is_byte                               ? kByte
                : text == unknown && !unknown.empty() ? kUnknown
                                                      : kNormal);
  }
  if (!sentencepiece) {
    const bool ignore_merges = model["ignore_merges"].boolean_or(false);
    return {{"tokenizer.ggml.model", std::string("gpt2")},
            {"tokenizer.ggml.pre", pre_tokenizer_name(json, ignore_merges, notes)},
            {"tokenizer.ggml.merges", merges}};
  }
  score_by_merges(merges, vocab, tokens);
  std::vector<JsonView> steps;
  flatten(json["normalizer"], "normalizers", steps);
  flatten(json["pre_tokenizer"], "pretokenizers", steps);
  const bool prefix = std::any_of(steps.begin(), steps.end(), [](const JsonView& step) {
    const std::string& type = step["type"].string();
    return type == "Prepend" || (type == "Metaspace" && step["prepend_scheme"].string_or("always") != "never");
  });
  return {{"tokenizer.ggml.model", std::string("llama")},
          {"tokenizer.ggml.pre", std::string("default")},
          {"tokenizer.ggml.scores", tokens.scores},
          {"tokenizer.ggml.add_space_prefix", prefix}};
}

/// vocab.json and merges.txt, as the tokenizer.json that they amount to.
Json json_of_pair(const fs::path& folder) {
  Json merges = Json::array();
  for (const std::string& line : split(read_bytes(folder / "merges.txt"), '\n')) {
    const std::string clean = line.ends_with('\r') ? line.substr(0, line.size() - 1) : line;
    if (!clean.empty() && !clean.starts_with("#version")) merges.push_back(clean);
  }
  return {{"pre_tokenizer", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", read_json_file(folder / "vocab.json")}, {"merges", merges}}}};
}

/// The marker of that role in tokenizer_config.json.
std::optional<int32_t> special_of(const Json& config, const char* key, const Tokenizer& tokenizer) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return std::nullopt;
  const Json& text = found->is_object() ? found->value("content", Json()) : *found;
  return text.is_string() ? tokenizer.find(text.get<std::string>()) : std::nullopt;
}

/// The chat template that the folder itself has.
std::optional<ChatSource> own_chat(const fs::path& folder, const Tokenizer& tokenizer) {
  try {
    const ChatSource source = chat_source_for("", folder, tokenizer);
    return source.of_folder ? std::optional(source) : std::nullopt;
  } catch (const ConfigError&) {
    return std::nullopt;  // it has none, and the tokenizer has no markers of one
  }
}

/// The marker that ends an answer in a chat template, unless the template is not understood.
std::optional<int32_t> end_of_turn(const ChatSource& chat, const Tokenizer& tokenizer) {
  try {
    return ChatTemplate(chat, tokenizer).stop_ids().back();
  } catch (const ConfigError&) {
    return std::nullopt;  // llama.cpp goes by the names of well-known markers
  }
}

void add_specials(const fs::path& folder, const std::string& name, const ModelConfig& config, GgufMetadata& metadata) {
  const auto tokenizer = make_tokenizer(name);
  std::error_code ignored;
  const fs::path file = folder / "tokenizer_config.json";
  const Json settings = fs::is_regular_file(file, ignored) ? read_json_file(file) : Json::object();
  std::optional<int32_t> bos = special_of(settings, "bos_token", *tokenizer);
  std::optional<int32_t> eos = special_of(settings, "eos_token", *tokenizer);
  if (!tokenizer->prefix().empty()) bos = tokenizer->prefix().front();
  if (!bos && config.bos_token_id) bos = static_cast<int32_t>(*config.bos_token_id);
  if (!eos && !config.eos_token_ids.empty()) eos = static_cast<int32_t>(config.eos_token_ids.front());
  if (!eos && name == "bytes") eos = tokenizer->separator();
  const std::optional<ChatSource> chat = name == "bytes" ? std::nullopt : own_chat(folder, *tokenizer);
  const std::optional<int32_t> eot = chat ? end_of_turn(*chat, *tokenizer) : std::nullopt;
  const auto put = [&](const char* key, std::optional<int32_t> id) {
    if (id && 0 <= *id && *id < config.vocab_size)
      metadata.emplace_back(fmt::format("tokenizer.ggml.{}_token_id", key), static_cast<uint32_t>(*id));
  };
  put("bos", bos);
  put("eos", eos);
  if (eot != eos) put("eot", eot);
  put("unknown", special_of(settings, "unk_token", *tokenizer));
  put("padding", special_of(settings, "pad_token", *tokenizer));
  metadata.emplace_back("tokenizer.ggml.add_bos_token", !tokenizer->prefix().empty());
  metadata.emplace_back("tokenizer.ggml.add_eos_token", !tokenizer->suffix().empty());
  if (chat) metadata.emplace_back("tokenizer.chat_template", chat->jinja);
}

}  // namespace

namespace {

/// The vocabulary of a GGUF file as it is.
GgufMetadata copied_vocabulary(const GgufFile& file) {
  GgufMetadata metadata;
  for (const auto& [key, field] : file.metadata()) {
    if (!key.starts_with("tokenizer.")) continue;
    std::visit(
        [&, &key = key](const auto& value) {
          using T = std::decay_t<decltype(value)>;
          if constexpr (std::is_same_v<T, int64_t>) {
            metadata.emplace_back(key, static_cast<uint32_t>(value));
          } else if constexpr (std::is_same_v<T, double>) {
            metadata.emplace_back(key, static_cast<float>(value));
          } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
            metadata.emplace_back(key, std::vector<int32_t>(value.begin(), value.end()));
          } else if constexpr (std::is_same_v<T, std::vector<double>>) {
            metadata.emplace_back(key, std::vector<float>(value.begin(), value.end()));
          } else {
            metadata.emplace_back(key, value);
          }
        },
        field.value);
  }
  return metadata;
}

}  // namespace

GgufMetadata gguf_tokenizer(const std::string& name, const ModelConfig& config, std::vector<std::string>& notes) {
  std::error_code ignored;
  if (is_gguf_path(name) && fs::is_regular_file(name, ignored)) return copied_vocabulary(GgufFile(name));
  const fs::path folder = fs::is_directory(name, ignored) ? fs::path(name) : fs::path(name).parent_path();
  const auto holds = [&](const char* file) { return fs::is_regular_file(folder / file, ignored); };
  Json json;
  if (name == "bytes") {
    json = parse_json(tokenizer_json_with(name, {}).bytes, name);
  } else if (!name.empty() && holds("tokenizer.json")) {
    json = read_json_file(folder / "tokenizer.json");
  } else if (!name.empty() && holds("vocab.json") && holds("merges.txt")) {
    json = json_of_pair(folder);
  }
  const JsonView view(json, name);
  if (json.is_null() || view["model"]["type"].string_or("BPE") != "BPE") {
    notes.push_back(
        "the file has no vocabulary: it takes the BPE of a tokenizer.json, or of vocab.json and merges.txt");
    return {{"tokenizer.ggml.model", std::string("no_vocab")}};
  }
  TokenTable tokens(config.vocab_size);
  GgufMetadata metadata = read_bpe_model(view, tokens, notes);
  if (!view["added_tokens"].is_null())
    for (const JsonView& added : view["added_tokens"].list())
      if (added["content"].string() != byte_separator())
        set_checked(added, tokens, added["id"].integer(), added["content"].string(),
                    added["special"].boolean_or(false) ? kControl : kUserDefined);
  metadata.emplace_back("tokenizer.ggml.tokens", std::move(tokens.texts));
  metadata.emplace_back("tokenizer.ggml.token_type", std::move(tokens.types));
  add_specials(folder, name, config, metadata);
  return metadata;
}

std::string gguf_name(std::string name, const GgufMetadata& tokenizer, std::vector<std::string>& notes) {
  std::set<std::string> tokens;
  for (const auto& [key, value] : tokenizer)
    if (key == "tokenizer.ggml.tokens")
      for (const std::string& token : std::get<std::vector<std::string>>(value)) tokens.insert(token);
  if (tokens.empty()) return name;
  const auto phi_at = [&] {
    const std::string lower = lower_case(name);
    return std::min(lower.find("phi3"), lower.find("phi-3"));
  };
  const auto is_there = [&](const char* marker) { return tokens.contains(marker); };
  constexpr const char* kMarkers[] = {"<s>", "</s>", "<unk>", "<|endoftext|>"};
  if (phi_at() == std::string::npos || std::all_of(std::begin(kMarkers), std::end(kMarkers), is_there)) return name;
  const std::string before = name;
  for (size_t at = phi_at(); at != std::string::npos; at = phi_at()) {
    if (name[at + 3] == '-') name.erase(at + 3, 1);
    name.insert(at + 3, 1, '_');
  }
  notes.push_back(
      fmt::format("the file calls the model \"{}\", as llama.cpp does not load a \"{}\" without the tokens {}", name,
                  before, fmt::join(kMarkers, ", ")));
  return name;
}

}  // namespace nought
