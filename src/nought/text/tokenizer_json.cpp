#include <limits>

#include "nought/base/error.h"
#include "nought/base/text.h"
#include "nought/io/files.h"
#include "nought/text/tokenizer_files.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

// In a byte-level vocabulary a token is written in characters for bytes; markers within it are not.
std::string token_bytes(const std::string& token, bool byte_level) {
  if (!byte_level) return token;
  const auto bytes = characters_to_bytes(token);
  return bytes ? *bytes : token;
}

void read_added_tokens(const JsonView& json, AddedTokens& added) {
  if (json.is_null()) return;
  for (const JsonView& token : json.list()) {
    const int64_t id = token["id"].integer();
    token["id"].check(0 <= id && id < (1 << 24), "{} is no token id", id);
    token.refuse({"single_word"});
    const bool special = token["special"].boolean_or(false);
    added.add({.content = token["content"].string(),
               .id = static_cast<int32_t>(id),
               .special = special,
               .strip_left = token["lstrip"].boolean_or(false),
               .strip_right = token["rstrip"].boolean_or(false),
               .normalized = token["normalized"].boolean_or(!special)});
  }
}

int32_t known_token(const JsonView& place, const Vocabulary& vocabulary, const std::string& token, bool byte_level) {
  const auto id = vocabulary.find(token_bytes(token, byte_level));
  place.check(id.has_value(), "\"{}\" is not in the vocabulary", token);
  return *id;
}

std::optional<int32_t> read_unknown(const JsonView& json, const Vocabulary& vocabulary, bool byte_level) {
  if (json.is_null()) return std::nullopt;
  return known_token(json, vocabulary, json.string(), byte_level);
}

// A merge is "left right" or ["left", "right"].
std::pair<std::string, std::string> read_merge(const JsonView& json) {
  if (json.is_list()) {
    const auto pair = json.list();
    json.check(pair.size() == 2, "expected two tokens, found {}", pair.size());
    return {pair[0].string(), pair[1].string()};
  }
  const std::string& text = json.string();
  const size_t space = text.find(' ');
  json.check(space != std::string::npos && text.find(' ', space + 1) == std::string::npos,
             "expected two tokens with a space between, found \"{}\"", text);
  return {text.substr(0, space), text.substr(space + 1)};
}

std::vector<Merge> read_merges(const JsonView& json, const Vocabulary& vocabulary, bool byte_level) {
  std::vector<Merge> merges;
  const std::vector<JsonView> list = json.list();
  merges.reserve(list.size());
  for (const JsonView& each : list) {
    const auto [left, right] = read_merge(each);
    merges.push_back({known_token(each, vocabulary, left, byte_level), known_token(each, vocabulary, right, byte_level),
                      known_token(each, vocabulary, left + right, byte_level), static_cast<uint32_t>(merges.size())});
  }
  return merges;
}

void add_vocabulary(const JsonView& vocab, bool byte_level, Vocabulary& vocabulary) {
  vocab.check(vocab.is_object(), "expected an object, found {}", describe_json(vocab.json()));
  for (const auto& [token, id] : vocab.json().items())
    vocabulary.add(token_bytes(token, byte_level), JsonView(id, vocab.place()).integer());
}

void read_bpe(const JsonView& json, TextPipeline& pipeline) {
  json.refuse({"dropout", "continuing_subword_prefix", "end_of_word_suffix"});
  const bool byte_level = pipeline.pre_tokenizers.byte_level;
  Vocabulary& vocabulary = *pipeline.vocabulary;
  add_vocabulary(json["vocab"], byte_level, vocabulary);
  pipeline.model = make_bpe(vocabulary, read_merges(json["merges"], vocabulary, byte_level),
                            {.byte_level = byte_level,
                             .ignore_merges = json["ignore_merges"].boolean_or(false),
                             .byte_fallback = json["byte_fallback"].boolean_or(false),
                             .fuse_unknown = json["fuse_unk"].boolean_or(false),
                             .unknown = read_unknown(json["unk_token"], vocabulary, byte_level)});
}

void read_unigram(const JsonView& json, TextPipeline& pipeline) {
  json.check(!pipeline.pre_tokenizers.byte_level, "a byte-level Unigram is not supported");
  std::vector<double> scores;
  for (const JsonView& entry : json["vocab"].list()) {
    const auto pair = entry.list();
    entry.check(pair.size() == 2, "expected a token and its score, found {} values", pair.size());
    pipeline.vocabulary->add(pair[0].string(), static_cast<int64_t>(scores.size()));
    scores.push_back(pair[1].number());
  }
  std::optional<int32_t> unknown;
  if (const JsonView id = json["unk_id"]; !id.is_null()) {
    id.check(pipeline.vocabulary->token(id.integer()), "{} is not in the vocabulary", id.integer());
    unknown = static_cast<int32_t>(id.integer());
  }
  pipeline.model = make_unigram(*pipeline.vocabulary, std::move(scores),
                                {.byte_fallback = json["byte_fallback"].boolean_or(false), .unknown = unknown});
}

void read_wordpiece(const JsonView& json, TextPipeline& pipeline) {
  json.check(!pipeline.pre_tokenizers.byte_level, "a byte-level WordPiece is not supported");
  add_vocabulary(json["vocab"], /*byte_level=*/false, *pipeline.vocabulary);
  const JsonView unknown = json["unk_token"];
  WordPieceOptions options;
  options.unknown = known_token(unknown, *pipeline.vocabulary, unknown.string(), /*byte_level=*/false);
  options.continuing = json["continuing_subword_prefix"].string_or(options.continuing);
  if (const JsonView longest = json["max_input_chars_per_word"]; !longest.is_null()) {
    longest.check(longest.integer() > 0, "is {}, expected a number above 0", longest.integer());
    options.longest_word = static_cast<size_t>(longest.integer());
  }
  pipeline.model = make_wordpiece(*pipeline.vocabulary, options);
}

void read_model(const JsonView& json, TextPipeline& pipeline) {
  // Files of older versions leave the type of a BPE out.
  const std::string type = json["type"].string_or(json["merges"].is_null() ? "?" : "BPE");
  if (type == "BPE") {
    read_bpe(json, pipeline);
  } else if (type == "Unigram") {
    read_unigram(json, pipeline);
  } else if (type == "WordPiece") {
    read_wordpiece(json, pipeline);
  } else {
    json.check(false, "the model {} is not supported; supported are BPE, Unigram and WordPiece", type);
  }
}

int32_t token_id(const JsonView& json) {
  const int64_t value = json.integer();
  json.check(0 <= value && value < (1 << 24), "{} is no token id", value);
  return static_cast<int32_t>(value);
}

// A token as BERT's and RoBERTa's own post-processors name it: ["[CLS]", 101].
int32_t id_of_pair(const JsonView& json) {
  const std::vector<JsonView> pair = json.list();
  json.check(pair.size() == 2, "expected a token and its id, found {} values", pair.size());
  return token_id(pair[1]);
}

// The ids that a template puts before and after one text.
void read_template(const JsonView& json, TextPipeline& pipeline) {
  bool after = false;
  for (const JsonView& item : json["single"].list()) {
    if (!item["Sequence"].is_null()) {
      item.check(!after, "the text is given twice");
      after = true;
      continue;
    }
    const std::string& name = item["SpecialToken"]["id"].string();
    for (const JsonView& id : json["special_tokens"][name]["ids"].list())
      (after ? pipeline.suffix : pipeline.prefix).push_back(token_id(id));
  }
}

void read_post_processor(const JsonView& json, TextPipeline& pipeline) {
  if (json.is_null()) return;
  const std::string& type = json["type"].string();
  if (type == "Sequence") {
    for (const JsonView& step : json["processors"].list()) read_post_processor(step, pipeline);
  } else if (type == "TemplateProcessing") {
    read_template(json, pipeline);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    pipeline.prefix.push_back(id_of_pair(json["cls"]));
    pipeline.suffix.push_back(id_of_pair(json["sep"]));
  } else {
    json.check(type == "ByteLevel",  // which only moves offsets
               "the post-processor {} is not supported; supported are TemplateProcessing, BertProcessing, "
               "RobertaProcessing, ByteLevel and Sequence",
               type);
  }
}

// The name of a token in tokenizer_config.json: "</s>" or {"content": "</s>", ...}.
std::string token_name(const JsonView& json) {
  return json.is_object() ? json["content"].string() : json.string_or("");
}

}  // namespace

std::unique_ptr<Tokenizer> read_tokenizer_json(const fs::path& file) {
  return parse_tokenizer_json({file.string(), file.parent_path(), read_bytes(file)});
}

std::unique_ptr<Tokenizer> parse_tokenizer_json(const TokenizerJson& source) {
  const std::string &name = source.name, &bytes = source.bytes;
  if (bytes == tokenizer_json_with("bytes", {}).bytes) return make_byte_tokenizer();
  const Json json = parse_json(bytes, name);
  const JsonView root(json, name);
  TextPipeline pipeline;
  identify(name, bytes, pipeline);
  try {
    pipeline.normalizers = read_normalizers(root["normalizer"]);
    pipeline.pre_tokenizers = read_pre_tokenizers(root["pre_tokenizer"]);
    read_added_tokens(root["added_tokens"], pipeline.added);
    read_model(root["model"], pipeline);
    pipeline.decoder = TokenDecoder(root["decoder"], pipeline.pre_tokenizers.byte_level);
    read_post_processor(root["post_processor"], pipeline);
  } catch (const ConfigError& error) {  // of a pattern or a vocabulary, which do not know the file
    const std::string message = one_line(error.what());
    throw ConfigError(message.starts_with(name) ? message : fmt::format("{}: {}", name, message));
  }
  if (source.separator) pipeline.separator = static_cast<int32_t>(*source.separator);
  if (source.folder) find_separator(*source.folder, pipeline);
  if (!pipeline.separator) pipeline.separator = pipeline.added.find(byte_separator());
  return std::make_unique<TextTokenizer>(std::move(pipeline));
}

void find_separator(const fs::path& folder, TextPipeline& pipeline) {
  const auto find = [&](const std::string& name) {
    const auto added = pipeline.added.find(name);
    return added ? added : pipeline.vocabulary->find(name);
  };
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const fs::path file = folder / name;
    std::error_code error;
    if (!fs::is_regular_file(file, error)) continue;
    const Json json = read_json_file(file.string());
    const JsonView eos = JsonView(json, file.string())["eos_token"];
    if (eos.is_null()) continue;
    pipeline.separator = find(token_name(eos));
    eos.check(pipeline.separator.has_value(), "\"{}\" is not a token of {}", token_name(eos), pipeline.name);
    return;
  }
  for (const char* name : {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eot_id|>", "<|im_end|>",
                           "<\uff5cend\u2581of\u2581sentence\uff5c>"}) {
    pipeline.separator = find(name);
    if (pipeline.separator) return;
  }
}

}  // namespace nought
