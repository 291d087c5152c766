// vocab.txt: WordPiece's tokens, one a line, as BERT's first files have them. What they leave unsaid is in
// tokenizer_config.json, or as BertTokenizer has it.
#include <algorithm>
#include <unordered_map>

#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/base/text.h"
#include "nought/io/files.h"
#include "nought/text/json_view.h"
#include "nought/text/tokenizer_files.h"
#include "nought/text/unicode.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

constexpr const char* kRoles[][2] = {{"unk_token", "[UNK]"},
                                     {"sep_token", "[SEP]"},
                                     {"pad_token", "[PAD]"},
                                     {"cls_token", "[CLS]"},
                                     {"mask_token", "[MASK]"}};

Json config_beside(const fs::path& vocab) {
  const fs::path file = vocab.parent_path() / "tokenizer_config.json";
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return Json::object();
  Json json = read_json_file(file.string());
  const JsonView config(json, file.string());
  config.check(json.is_object(), "expected an object, found {}", describe_json(json));
  const std::string name = config["tokenizer_class"].string_or("BertTokenizer");
  config["tokenizer_class"].check(name == "BertTokenizer" || name == "BertTokenizerFast" ||
                                      name == "DistilBertTokenizer" || name == "DistilBertTokenizerFast",
                                  "vocab.txt of a {} is not supported: a tokenizer.json says all of its rules", name);
  return json;
}

std::vector<std::string> tokens_in(const std::string& text) {
  std::vector<std::string> tokens;
  for (std::string line : split(text, '\n')) {
    if (line.ends_with('\r')) line.pop_back();
    tokens.push_back(std::move(line));
  }
  if (!tokens.empty() && tokens.back().empty()) tokens.pop_back();  // the last line ends, too
  return tokens;
}

/// The step of a template that writes a special token, or the text.
OrderedJson template_step(const char* kind, const std::string& id, int type) {
  return {{kind, {{"id", id}, {"type_id", type}}}};
}

using Ids = std::unordered_map<std::string, int64_t>;

OrderedJson template_of(const std::string& cls, const std::string& sep, const Ids& ids) {
  const OrderedJson begin = template_step("SpecialToken", cls, 0), end = template_step("SpecialToken", sep, 0),
                    text = template_step("Sequence", "A", 0);
  OrderedJson specials = OrderedJson::object();
  for (const std::string& token : {cls, sep})
    specials[token] = {{"id", token}, {"ids", {ids.at(token)}}, {"tokens", {token}}};
  return {{"type", "TemplateProcessing"},
          {"single", {begin, text, end}},
          {"pair", {begin, text, end, template_step("Sequence", "B", 1), template_step("SpecialToken", sep, 1)}},
          {"special_tokens", specials}};
}

}  // namespace

OrderedJson wordpiece_json(const fs::path& file) {
  const Json config = config_beside(file);
  const std::string text = read_bytes(file);
  require<ConfigError>(is_valid_utf8(text), "{}: is no text in UTF-8", file.string());
  OrderedJson::object_t vocab;  // whose own insertion looks through all of it
  Ids ids;
  for (const std::string& token : tokens_in(text)) {
    require<ConfigError>(ids.emplace(token, std::ssize(vocab)).second, "{}:{}: \"{}\" is there twice", file.string(),
                         vocab.size() + 1, one_line(token));
    vocab.emplace_back(token, std::ssize(vocab));
  }
  OrderedJson added = OrderedJson::array();
  std::vector<std::string> roles;
  for (const auto& [key, otherwise] : kRoles) {
    const Json value = config.value(key, Json());
    const Json name = value.is_object() ? value.value("content", Json()) : value;
    roles.push_back(name.is_string() ? name.get<std::string>() : otherwise);
    const auto id = ids.find(roles.back());
    require<ConfigError>(id != ids.end(),
                         "{}: has no line \"{}\", which BERT's tokenizer needs: is it another vocabulary?",
                         file.string(), one_line(roles.back()));
    if (std::ranges::count(roles, roles.back()) == 1) added.push_back(special_token(roles.back(), id->second));
  }
  const auto flag = [&](const char* key) { return !config.contains(key) || config[key] != false; };
  const Json accents = config.value("strip_accents", Json());
  return {{"version", "1.0"},
          {"added_tokens", added},
          {"normalizer",
           {{"type", "BertNormalizer"},
            {"clean_text", true},
            {"handle_chinese_chars", flag("tokenize_chinese_chars")},
            {"strip_accents", accents.is_boolean() ? OrderedJson(accents.get<bool>()) : OrderedJson()},
            {"lowercase", flag("do_lower_case")}}},
          {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
          {"post_processor", template_of(roles[3], roles[1], ids)},
          {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
          {"model",
           {{"type", "WordPiece"},
            {"unk_token", roles[0]},
            {"continuing_subword_prefix", "##"},
            {"max_input_chars_per_word", 100},
            {"vocab", vocab}}}};
}

std::unique_ptr<Tokenizer> read_vocab_txt(const fs::path& file) {
  return parse_tokenizer_json({file.string(), file.parent_path(), wordpiece_json(file).dump(2) + "\n"});
}

}  // namespace nought
