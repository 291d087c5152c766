#include "nought/data/corpus_kind.h"

#include <algorithm>
#include <array>

#include "nought/base/error.h"
#include "nought/base/utf8.h"
#include "nought/chat/preference.h"
#include "nought/chat/record_json.h"
#include "nought/data/corpus.h"
#include "nought/io/byte_source.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

/// How files of other formats begin, and what to do with them.
struct Signature {
  std::string_view begin, name;
};
constexpr Signature kSignatures[] = {
    {"%PDF-", "a PDF document: extract its text, for instance with pdftotext"},
    {"PK\x03\x04", "a ZIP archive, as .docx and .epub files are: extract its text"},
    {"\x1f\x8b", "compressed twice: gunzip it"},
    {"\x28\xb5\x2f\xfd", "compressed twice: unzstd it"},
    {"\xfd"
     "7zXZ",
     "compressed: unxz it"},
    {"BZh91AY&SY", "compressed: bunzip2 it"},
    {"\x89PNG", "a picture"},
    {"\xff\xd8\xff", "a picture"},
    {"\x7f"
     "ELF",
     "a program"},
    {"GGUF", "weights of a model"},
    {"NOUGHTTK", "a token file, which data.files of a run may name"},
    {"PAR1", "a Parquet file within a compressed one: decompress it"},
    {"SQLite format 3", "a database: write its rows as JSON lines"},
    {"\xff\xfe", "UTF-16: iconv -f UTF-16 -t UTF-8 makes it readable"},
    {"\xfe\xff", "UTF-16: iconv -f UTF-16 -t UTF-8 makes it readable"},
};

/// The share of bytes that belong to no character of a text.
double strange_share(std::string_view bytes) {
  constexpr std::string_view kControls = "\t\n\v\f\r\b\x1b";
  size_t strange = 0;
  for (size_t at = 0; at < bytes.size();) {
    const size_t size = valid_utf8_character(bytes.substr(at));
    const bool control = size == 1 && static_cast<unsigned char>(bytes[at]) < 0x20 &&
                         kControls.find(bytes[at]) == std::string_view::npos;
    if (size == 0 || control) ++strange;
    at += std::max<size_t>(size, 1);
  }
  return bytes.empty() ? 0 : static_cast<double>(strange) / static_cast<double>(bytes.size());
}

/// Where the JSON value that begins at `at` ends. What is cut off or malformed ends with the text.
size_t end_of_value(std::string_view text, size_t at) {
  int64_t depth = 0;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') {
      for (++at; at < text.size() && text[at] != '"'; ++at)
        if (text[at] == '\\') ++at;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      if (depth == 0) return at;  // of what the value is in
      if (--depth == 0) return at + 1;
      continue;
    } else if (depth == 0 && (c == ',' || kBlanks.find(c) != std::string_view::npos)) {
      return at;
    }
    if (depth == 0 && c == '"') return std::min(at + 1, text.size());
  }
  return text.size();
}

/// In any order if it has very many keys.
OrderedJson parsed_or_null(std::string_view text) {
  OrderedJson json = has_few_keys(text) ? OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false)
                                        : OrderedJson(Json::parse(text, nullptr, /*allow_exceptions=*/false));
  return json.is_discarded() ? OrderedJson() : json;
}

bool is_message(const OrderedJson& json) {
  return json.is_object() &&
         ((json.contains("role") && json.contains("content")) || (json.contains("from") && json.contains("value")));
}

/// The first record of a file, null if there is none, and how its records follow each other.
std::pair<OrderedJson, RecordLayout> first_record(std::string_view text) {
  size_t begin = text.find_first_not_of(kBlanks);
  if (text.starts_with(kByteOrderMark)) begin = text.find_first_not_of(kBlanks, kByteOrderMark.size());
  if (begin == std::string_view::npos) return {};
  text.remove_prefix(begin);
  if (text[0] == '[') {
    const std::optional<std::string_view> element = RecordReader(text, RecordLayout::list, true).next();
    const OrderedJson first = element ? parsed_or_null(*element) : OrderedJson();
    // A list of messages is one conversation.
    if (is_message(first)) return {parsed_or_null(text.substr(0, end_of_value(text, 0))), RecordLayout::values};
    return {first, RecordLayout::list};
  }
  if (text[0] != '{') return {};
  if (OrderedJson line = parsed_or_null(text.substr(0, text.find('\n'))); line.is_object())
    return {std::move(line), RecordLayout::lines};
  OrderedJson value = parsed_or_null(text.substr(0, end_of_value(text, 0)));
  const RecordLayout layout = value.is_null() ? RecordLayout::lines : RecordLayout::values;
  return {std::move(value), layout};
}

/// The form of a file's first record.
std::optional<ConversationForm> form_of(const OrderedJson& record) {
  if (record.is_array() && (record.empty() || !is_message(record.front()))) return std::nullopt;
  return conversation_form(record);
}

std::string keys_of(const OrderedJson& record) {
  std::string keys;
  for (const auto& [key, value] : record.items()) {
    if (keys.size() > 80) return keys + ", ...";
    keys += (keys.empty() ? "" : ", ") + one_line(key);
  }
  return keys.empty() ? "none" : keys;
}

/// Answers that were preferred or not are for other objectives than the likelihood of all of them.
void refuse_preferences(const fs::path& file, const OrderedJson& record) {
  require<ConfigError>(
      !is_preference(record),
      "{}: holds pairs of answers (chosen and rejected): alignment.method = \"dpo\" (orpo, cpo) in the "
      "run's file trains on them; for supervised training write the chosen answers as conversations",
      file.string());
  require<ConfigError>(!is_labelled(record),
                       "{}: holds answers with labels (completion and label): alignment.method = \"kto\" in the run's "
                       "file trains on them; for supervised training write the completions with label true as "
                       "conversations",
                       file.string());
}

bool is_text_in(const OrderedJson& record, const std::string& field) {
  return record.is_object() && record.contains(field) && record[field].is_string();
}

}  // namespace

std::string why_not_text(std::string_view bytes) {
  for (const Signature& each : kSignatures)
    if (bytes.starts_with(each.begin)) return std::string(each.name);
  constexpr size_t kLook = size_t{1} << 16;
  constexpr double kMostStrange = 0.1;  // Latin-1 of a language of Western Europe has less
  const double share = strange_share(bytes.substr(0, kLook));
  if (share <= kMostStrange || bytes.substr(0, kLook).find('\0') != std::string_view::npos) return "";
  return fmt::format(
      "no UTF-8 text ({:.0f}% of its first bytes belong to no character): convert it, for instance with iconv -t "
      "UTF-8; with the format \"text\" it is read as it is",
      100 * share);
}

CorpusKind corpus_kind(const fs::path& file, std::string_view text, const CorpusOptions& options) {
  const fs::path extension = decoded_name(file).extension();
  require<ConfigError>(
      extension != ".arrow",
      "{}: Arrow files are not read: write its rows as Parquet (datasets' to_parquet()) or as JSON lines",
      file.string());
  if (options.format == CorpusFormat::text) return {};
  if (const std::string reason = why_not_text(text); !reason.empty())
    fail<ConfigError>("{}: expected text, this is {}", file.string(), reason);
  const auto [record, layout] = first_record(text);
  const auto form = form_of(record);
  if (options.format && is_of_answers(*options.format)) {
    const bool scored = options.format == CorpusFormat::scored;
    const bool prompts = options.format == CorpusFormat::prompts;
    const bool completions = *options.format == CorpusFormat::completions;
    const bool messages =
        ((prompts || completions) && record.is_object() && record.contains("prompt") && record["prompt"].is_array()) ||
        ((scored || completions) && record.is_object() && record.contains("messages")) ||
        (is_preference(record) && record["chosen"].is_array()) ||
        (is_labelled(record) && record["completion"].is_array());
    return {*options.format, layout, messages ? std::optional(ConversationForm::messages) : std::nullopt};
  }
  if (options.format) return {*options.format, layout, form};
  refuse_preferences(file, record);
  if (form) return {CorpusFormat::chat, layout, form};
  if (is_text_in(record, options.field)) return {CorpusFormat::jsonl, layout};
  if (extension == ".jsonl" || extension == ".ndjson") return {CorpusFormat::jsonl, layout};
  if (extension == ".json" && record.is_object()) return {.unknown_keys = keys_of(record)};
  return {};
}

bool begins_with_pair(std::string_view text) { return is_preference(first_record(text).first); }

RecordReader::RecordReader(std::string_view text, RecordLayout layout, bool begins_file)
    : text_(text), list_(layout == RecordLayout::list) {
  if (!begins_file) return;
  if (text_.starts_with(kByteOrderMark)) at_ = kByteOrderMark.size();
  if (!list_) return;
  at_ = std::min(text_.find_first_not_of(kBlanks, at_), text_.size());
  if (at_ < text_.size()) ++at_;  // the bracket
}

void RecordReader::skip_between() {
  while (at_ < text_.size() && (kBlanks.find(text_[at_]) != std::string_view::npos || text_[at_] == ',')) ++at_;
}

std::optional<std::string_view> RecordReader::next() {
  skip_between();
  if (list_ && at_ < text_.size() && text_[at_] == ']')
    ++at_, skip_between();  // what follows is no record, and no JSON
  if (at_ == text_.size()) return std::nullopt;
  const size_t begin = at_;
  at_ = std::max(end_of_value(text_, begin), begin + 1);
  return text_.substr(begin, at_ - begin);
}

}  // namespace nought
