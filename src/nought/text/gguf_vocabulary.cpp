#include "nought/text/gguf_vocabulary.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "nought/base/error.h"
#include "nought/base/text.h"
#include "nought/io/strict_json.h"
#include "nought/tensor/random.h"
#include "nought/text/text_tokenizer.h"
#include "nought/text/tokenizer_files.h"
#include "nought/text/unicode.h"

namespace nought {

namespace {

namespace fs = std::filesystem;

/// llama.cpp's numbers of token types.
constexpr int64_t kUnknownToken = 2, kControlToken = 3, kUserToken = 4;

/// Text is cut by each of the patterns in turn.
struct CuttingRule {
  std::vector<std::string_view> names;
  std::vector<std::string_view> patterns;
  bool ignore_merges = false, begins = false;  // begins: a text begins with a marker unless the file says otherwise
};

constexpr std::string_view kPunctuation = R"([\p{P}\$\+<=>\^~\|]+)", kFalconPunctuation = R"([\p{P}\$\+<=>\^~\|`]+)";
constexpr std::string_view kThreeDigits = "[0-9][0-9][0-9]";
constexpr std::string_view kTekkenPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepseek3Pattern =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// llama.cpp's rules (src/llama-vocab.cpp).
const std::vector<CuttingRule>& cutting_rules() {
  static const std::vector<CuttingRule> rules{
      {{"default"}, {kPunctuation, kGpt2Pattern, R"(\p{N}+)", kThreeDigits}},
      {{"gpt-2", "phi-2", "jina-es", "jina-de", "jina-v1-en", "jina-v2-es", "jina-v2-de", "mpt", "olmo", "jais",
        "gigachat", "trillion", "granite-docling", "roberta-bpe"},
       {kGpt2Pattern}},
      {{"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"},
       {kCl100kPattern},
       /*ignore_merges=*/true,
       /*begins=*/true},
      {{"dbrx", "smaug-bpe", "glm4", "chatglm-bpe", "phi-4"}, {kCl100kPattern}},
      {{"qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez"}, {kQwen2Pattern}},
      {{"gpt-4o", "llama4"}, {kO200kPattern}},
      {{"starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b"}, {R"(\p{N})", kGpt2Pattern}},
      {{"falcon"}, {kFalconPunctuation, kGpt2Pattern, kThreeDigits}},
      {{"tekken"}, {kTekkenPattern}, /*ignore_merges=*/true, /*begins=*/true},
      {{"deepseek-v3"}, {R"(\p{N}{1,3})", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", kDeepseek3Pattern}},
  };
  return rules;
}

/// What the metadata say of the tokenizer.
class GgufVocabulary {
 public:
  explicit GgufVocabulary(const GgufFile& file) : file_(file) {
    const std::string* model = file.text("tokenizer.ggml.model");
    if (model == nullptr || *model == "no_vocab") refuse("has no tokenizer: name one with --tokenizer");
    if (*model != "gpt2" && *model != "llama")
      refuse("the tokenizer \"{}\" is not read; gpt2 and llama are", excerpt(*model));
    is_sentencepiece_ = *model == "llama";
    const auto* tokens = file.texts("tokenizer.ggml.tokens");
    if (tokens == nullptr || tokens->empty()) refuse("has no tokenizer.ggml.tokens");
    tokens_ = tokens;
    types_ = file.integers("tokenizer.ggml.token_type");
    if (!types_.empty() && types_.size() != tokens->size())
      refuse("has {} tokens and {} types of them", tokens->size(), types_.size());
    scores_ = file.numbers("tokenizer.ggml.scores");
    if (is_sentencepiece_ && scores_.size() != tokens->size())
      refuse("has {} tokens and {} scores of them", tokens->size(), scores_.size());
    if (!std::all_of(scores_.begin(), scores_.end(), [](double each) { return std::isfinite(each); }))
      refuse("has a score of a token that is no number");
    if (!is_sentencepiece_) find_rule();
  }

  bool is_sentencepiece() const { return is_sentencepiece_; }
  const std::vector<std::string>& tokens() const { return *tokens_; }
  int64_t type(size_t id) const { return types_.empty() ? 1 : types_[id]; }
  bool is_added(size_t id) const { return type(id) == kControlToken || type(id) == kUserToken; }
  const CuttingRule& rule() const { return *rule_; }

  std::optional<int64_t> role(std::string_view name) const {
    const auto id = file_.integer(fmt::format("tokenizer.ggml.{}_token_id", name));
    return id && 0 <= *id && *id < std::ssize(*tokens_) ? id : std::nullopt;
  }
  bool adds(std::string_view name, bool otherwise) const {
    return file_.boolean(fmt::format("tokenizer.ggml.add_{}_token", name)).value_or(otherwise);
  }
  /// The markers before and after every text.
  std::vector<int64_t> around(std::string_view name) const {
    const bool otherwise = name == "bos" && (is_sentencepiece_ || rule_->begins);
    const auto id = role(name);
    return id && adds(name, otherwise) ? std::vector<int64_t>{*id} : std::vector<int64_t>{};
  }
  bool adds_space() const { return file_.boolean("tokenizer.ggml.add_space_prefix").value_or(true); }

  OrderedJson added_tokens() const {
    OrderedJson added = OrderedJson::array();
    for (size_t id = 0; id < tokens_->size(); ++id) {
      if (!is_added(id) || (*tokens_)[id].empty()) continue;
      OrderedJson token = special_token((*tokens_)[id], static_cast<int64_t>(id));
      token["special"] = type(id) == kControlToken;
      added.push_back(std::move(token));
    }
    return added;
  }

  /// The merges of SentencePiece: a pair becomes the token that both spell, and the likeliest token comes first. All
  /// pairs of a token have its rank, so that of equals the leftmost is merged, as SentencePiece does.
  std::vector<Merge> merges_by_score(const Vocabulary& vocabulary) const {
    std::vector<double> distinct = scores_;
    std::sort(distinct.begin(), distinct.end(), std::greater<>());
    distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    std::vector<Merge> merges;
    for (size_t id = 0; id < tokens_->size(); ++id) {
      const std::string& token = (*tokens_)[id];
      if (type(id) != 1) continue;
      const auto rank = std::lower_bound(distinct.begin(), distinct.end(), scores_[id], std::greater<>());
      for (size_t cut = utf8_length(token.empty() ? 'a' : token[0]); cut < token.size();
           cut += utf8_length(token[cut])) {
        const auto left = vocabulary.find(std::string_view(token).substr(0, cut));
        const auto right = left ? vocabulary.find(std::string_view(token).substr(cut)) : std::nullopt;
        if (right)
          merges.push_back({*left, *right, static_cast<int32_t>(id), static_cast<uint32_t>(rank - distinct.begin())});
      }
    }
    std::stable_sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) { return a.rank < b.rank; });
    return merges;
  }

  /// All tokens but markers.
  void fill(Vocabulary& vocabulary) const {
    for (size_t id = 0; id < tokens_->size(); ++id) {
      if (is_added(id)) continue;
      if (!is_valid_utf8((*tokens_)[id])) refuse("token {} is no UTF-8", id);
      vocabulary.add((*tokens_)[id], static_cast<int64_t>(id));
    }
  }
  std::optional<int32_t> unknown() const {
    if (const auto id = role("unknown")) return static_cast<int32_t>(*id);
    for (size_t id = 0; id < tokens_->size(); ++id)
      if (type(id) == kUnknownToken) return static_cast<int32_t>(id);
    return std::nullopt;
  }

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    throw ConfigError(
        one_line(fmt::format("{}: {}", file_.path().string(), fmt::format(format, std::forward<Args>(args)...))));
  }

 private:
  void find_rule() {
    const std::string* pre = file_.text("tokenizer.ggml.pre");
    const std::string name = pre == nullptr ? "default" : *pre;
    std::vector<std::string_view> all;
    for (const CuttingRule& each : cutting_rules()) {
      if (std::find(each.names.begin(), each.names.end(), name) != each.names.end()) rule_ = &each;
      all.insert(all.end(), each.names.begin(), each.names.end());
    }
    if (rule_ == nullptr)
      refuse("the rule \"{}\" by which its tokenizer cuts text (tokenizer.ggml.pre) is not known; known are {}",
             excerpt(name), fmt::join(all, ", "));
  }

  const GgufFile& file_;
  bool is_sentencepiece_ = false;
  const std::vector<std::string>* tokens_ = nullptr;
  std::vector<int64_t> types_;
  std::vector<double> scores_;
  const CuttingRule* rule_ = nullptr;
};

OrderedJson string_pattern(const char* text) { return {{"String", text}}; }

/// The steps of Llama's tokenizers: spaces are U+2581, and a text begins with one.
OrderedJson sentencepiece_normalizer(bool adds_space) {
  OrderedJson steps = OrderedJson::array();
  if (adds_space) steps.push_back({{"type", "Prepend"}, {"prepend", "\u2581"}});
  steps.push_back({{"type", "Replace"}, {"pattern", string_pattern(" ")}, {"content", "\u2581"}});
  return {{"type", "Sequence"}, {"normalizers", steps}};
}

OrderedJson sentencepiece_decoder(bool adds_space) {
  OrderedJson steps{{{"type", "Replace"}, {"pattern", string_pattern("\u2581")}, {"content", " "}},
                    {{"type", "ByteFallback"}},
                    {{"type", "Fuse"}}};
  if (adds_space) steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"type", "Sequence"}, {"decoders", steps}};
}

/// The cuts of a rule, and GPT-2's characters for bytes.
OrderedJson cutting_steps(const CuttingRule& rule) {
  OrderedJson steps = OrderedJson::array();
  for (const std::string_view pattern : rule.patterns)
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", std::string(pattern)}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  steps.push_back(byte_level_step(false));
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

/// Puts markers around every text.
OrderedJson template_of(const GgufVocabulary& vocabulary) {
  OrderedJson single = OrderedJson::array(), specials = OrderedJson::object();
  const auto add = [&](std::string_view role) {
    for (const int64_t id : vocabulary.around(role)) {
      const std::string& token = vocabulary.tokens()[static_cast<size_t>(id)];
      single.push_back({{"SpecialToken", {{"id", token}, {"type_id", 0}}}});
      specials[token] = {{"id", token}, {"ids", {id}}, {"tokens", {token}}};
    }
  };
  add("bos");
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  add("eos");
  if (specials.empty()) return nullptr;
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", single}, {"special_tokens", specials}};
}

/// Sorted, since an ordered object would look at all tokens for each.
Json spellings(const GgufVocabulary& vocabulary) {
  Json json = Json::object();
  for (size_t id = 0; id < vocabulary.tokens().size(); ++id)
    if (!vocabulary.is_added(id)) json[vocabulary.tokens()[id]] = id;
  return json;
}

/// Bytes that are no UTF-8 are replaced.
std::string dumped(const OrderedJson& json) {
  return json.dump(1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

std::string byte_level_tokenizer(const GgufFile& file, const GgufVocabulary& vocabulary) {
  const auto* merges = file.texts("tokenizer.ggml.merges");
  if (merges == nullptr) vocabulary.refuse("has no tokenizer.ggml.merges");
  OrderedJson json =
      byte_level_json(vocabulary.added_tokens(), cutting_steps(vocabulary.rule()), spellings(vocabulary), *merges);
  json["model"]["ignore_merges"] = vocabulary.rule().ignore_merges;
  if (OrderedJson markers = template_of(vocabulary); !markers.is_null()) json["post_processor"] = std::move(markers);
  return dumped(json);
}

std::string sentencepiece_tokenizer(const GgufVocabulary& vocabulary) {
  Vocabulary spelt;
  vocabulary.fill(spelt);
  OrderedJson merges = OrderedJson::array();
  for (const Merge& each : vocabulary.merges_by_score(spelt))
    merges.push_back({*spelt.token(each.left), *spelt.token(each.right)});
  const auto unknown = vocabulary.unknown();
  const OrderedJson name = unknown ? OrderedJson(vocabulary.tokens()[static_cast<size_t>(*unknown)]) : OrderedJson();
  OrderedJson json = byte_level_json(vocabulary.added_tokens(), nullptr, spellings(vocabulary), merges);
  json["normalizer"] = sentencepiece_normalizer(vocabulary.adds_space());
  json["decoder"] = sentencepiece_decoder(vocabulary.adds_space());
  json["post_processor"] = template_of(vocabulary);
  json["model"]["unk_token"] = name;
  json["model"]["fuse_unk"] = true;
  json["model"]["byte_fallback"] = true;
  return dumped(json);
}

/// As the tokenizer.json, but that merges of one token have one rank.
std::unique_ptr<Tokenizer> make_sentencepiece(const GgufFile& file, const GgufVocabulary& vocabulary) {
  TextPipeline pipeline;
  const std::string name = file.path().string();
  pipeline.name = name;
  vocabulary.fill(*pipeline.vocabulary);
  std::string all;
  for (const std::string& token : vocabulary.tokens()) all += token + '\n';
  pipeline.fingerprint = stable_hash(all);
  const Json normalizer = sentencepiece_normalizer(vocabulary.adds_space());
  const Json decoder = sentencepiece_decoder(vocabulary.adds_space());
  pipeline.normalizers = read_normalizers(JsonView(normalizer, name));
  pipeline.decoder = TokenDecoder(JsonView(decoder, name), false);
  for (const OrderedJson& each : vocabulary.added_tokens())
    pipeline.added.add({.content = each["content"].get<std::string>(),
                        .id = each["id"].get<int32_t>(),
                        .special = each["special"].get<bool>()});
  pipeline.model =
      make_bpe(*pipeline.vocabulary, vocabulary.merges_by_score(*pipeline.vocabulary),
               {.byte_level = false, .byte_fallback = true, .fuse_unknown = true, .unknown = vocabulary.unknown()});
  for (const int64_t id : vocabulary.around("bos")) pipeline.prefix.push_back(static_cast<int32_t>(id));
  for (const int64_t id : vocabulary.around("eos")) pipeline.suffix.push_back(static_cast<int32_t>(id));
  if (const auto end = vocabulary.role("eos")) pipeline.separator = static_cast<int32_t>(*end);
  return std::make_unique<TextTokenizer>(std::move(pipeline));
}

}  // namespace

bool holds_gguf_vocabulary(const fs::path& path) {
  std::error_code ignored;
  if (!is_gguf_path(path) || !fs::is_regular_file(path, ignored)) return false;
  const GgufFile file(path);
  const std::string* model = file.text("tokenizer.ggml.model");
  return model != nullptr && *model != "no_vocab";
}

std::string gguf_tokenizer_json(const GgufFile& file) {
  const GgufVocabulary vocabulary(file);
  return vocabulary.is_sentencepiece() ? sentencepiece_tokenizer(vocabulary) : byte_level_tokenizer(file, vocabulary);
}

OrderedJson gguf_tokenizer_config(const GgufFile& file) {
  const GgufVocabulary vocabulary(file);
  OrderedJson config{{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
  constexpr std::pair<const char*, const char*> kRoles[] = {
      {"bos", "bos_token"}, {"eos", "eos_token"}, {"unknown", "unk_token"}, {"padding", "pad_token"}};
  for (const auto& [role, name] : kRoles)
    if (const auto id = vocabulary.role(role)) config[name] = vocabulary.tokens()[static_cast<size_t>(*id)];
  if (const std::string* program = file.text("tokenizer.chat_template")) config["chat_template"] = *program;
  return config;
}

std::unique_ptr<Tokenizer> read_gguf_tokenizer(const fs::path& path) {
  const GgufFile file(path);
  const GgufVocabulary vocabulary(file);
  if (vocabulary.is_sentencepiece()) return make_sentencepiece(file, vocabulary);
  return parse_tokenizer_json({.name = path.string(),
                               .folder = std::nullopt,
                               .bytes = byte_level_tokenizer(file, vocabulary),
                               .separator = vocabulary.role("eos")});
}

}  // namespace nought
