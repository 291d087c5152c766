#include "nought/data/corpus.h"

#include <algorithm>
#include <concepts>
#include <cstring>

#include <fmt/ranges.h>

#include "nought/base/error.h"
#include "nought/chat/record_json.h"
#include "nought/io/text_file.h"
#include "nought/text/unicode.h"

namespace nought {

namespace fs = std::filesystem;

CorpusReader::CorpusReader(std::vector<fs::path> files, CorpusOptions options, CutPoint cut_point, CorpusPlace place)
    : files_(std::move(files)), options_(std::move(options)), cut_point_(std::move(cut_point)), place_(place) {}

ChatTemplate template_of(const CorpusOptions& options, const Tokenizer& tokenizer) {
  return options.chat ? ChatTemplate(*options.chat, tokenizer) : ChatTemplate(chat_format_of(tokenizer), tokenizer);
}

CorpusFormat corpus_format(const fs::path& file, const CorpusOptions& options) {
  return corpus_kind(file, TextBeginning(file).text(), options).format;
}

CorpusOptions with_template(CorpusOptions options, std::span<const fs::path> files, const std::string& wanted,
                            const fs::path& tokenizer_path, const Tokenizer& tokenizer) {
  const auto is_chat = [&](const fs::path& file) {
    const CorpusKind kind = corpus_kind(file, TextBeginning(file).text(), options);
    return kind.format == CorpusFormat::chat || (is_of_answers(kind.format) && kind.form);
  };
  const auto chats = std::count_if(files.begin(), files.end(), is_chat);  // every file was looked at
  if (wanted.empty() && chats == 0) return options;
  options.chat = chat_source_for(wanted, tokenizer_path, tokenizer);
  const ChatTemplate readable(*options.chat, tokenizer);  // or says why not
  readable.require_markers();
  return options;
}

namespace {

std::string describe_chats(const CorpusKind& kind, const ChatTemplate& chat) {
  std::string text = fmt::format("conversations{}, written as {}; what assistants say is trained",
                                 kind.form ? fmt::format(" of {}", enum_name(*kind.form)) : "", chat.name());
  std::vector<std::string> refused = chat.refused_markers(), spelled = chat.missing_markers();
  std::erase_if(spelled, [&](const std::string& each) { return std::count(refused.begin(), refused.end(), each); });
  if (!spelled.empty()) text += fmt::format("; written as text, for want of a token: {}", fmt::join(spelled, ", "));
  if (!refused.empty())
    text += fmt::format("; a conversation that needs one of {} is refused: the tokenizer has no such token",
                        fmt::join(refused, ", "));
  return text;
}

/// What the user is told of a kind of file; "" for plain text.
std::string describe_kind(const fs::path& file, const CorpusKind& kind, const CorpusOptions& options,
                          const Tokenizer& tokenizer) {
  if (kind.format == CorpusFormat::chat) return describe_chats(kind, template_of(options, tokenizer));
  if (is_of_answers(kind.format)) {
    const std::string what = kind.format == CorpusFormat::prompts       ? "prompts"
                             : kind.format == CorpusFormat::completions ? "prompts with answers"
                                                                        : "judged answers";
    return what + (kind.form ? fmt::format(", written as {}", template_of(options, tokenizer).name()) : " in text");
  }
  if (kind.format == CorpusFormat::jsonl)
    return fmt::format("JSON {} with the text in \"{}\"", kind.layout == RecordLayout::lines ? "lines" : "records",
                       options.field);
  if (!kind.unknown_keys.empty()) {
    require<ConfigError>(!options.chat,
                         "{}: its records have the keys {}, which are neither a conversation (messages; conversations; "
                         "instruction and output; prompt and completion) nor a text (\"{}\"; data.field or --field "
                         "names another key): rename its keys, or leave the file out",
                         file.string(), kind.unknown_keys, options.field);
    return fmt::format("JSON without conversations and without texts in \"{}\", read as plain text", options.field);
  }
  return options.chat ? "plain text, all of it trained: the chat template is for conversations" : "";
}

}  // namespace

std::vector<std::string> describe_formats(std::span<const fs::path> files, const CorpusOptions& options,
                                          const Tokenizer& tokenizer) {
  std::vector<std::pair<std::string, std::vector<std::string>>> kinds;  // and their files
  for (const fs::path& file : files) {
    const CorpusKind kind = corpus_kind(file, TextBeginning(file).text(), options);
    const std::string text = describe_kind(file, kind, options, tokenizer);
    if (text.empty()) continue;
    auto found = std::find_if(kinds.begin(), kinds.end(), [&](const auto& each) { return each.first == text; });
    if (found == kinds.end()) found = kinds.insert(found, {text, {}});
    found->second.push_back(file.string());
  }
  std::vector<std::string> lines;
  for (const auto& [kind, names] : kinds)
    lines.push_back(fmt::format("{}{}: {}", names.front(),
                                names.size() > 1 ? fmt::format(" and {} more", names.size() - 1) : "", kind));
  return lines;
}

size_t CorpusReader::end_of_records(std::string_view text, size_t begin) const {
  if (kind_.layout != RecordLayout::lines) {
    RecordReader records(text.substr(begin), kind_.layout, begin == 0);
    while (records.position() < options_.portion_bytes && records.next()) {
    }
    return begin + records.position();
  }
  const size_t newline = text.find('\n', begin + options_.portion_bytes - 1);
  return newline == std::string_view::npos ? text.size() : newline + 1;
}

size_t CorpusReader::end_of_text(std::string_view text, size_t begin, bool& ends_document) const {
  const size_t least = begin + options_.portion_bytes;
  ends_document = true;
  if (least >= text.size()) return text.size();
  const std::string& separator = options_.separator;
  size_t cut = std::min(cut_point_(text, least), text.size());
  if (!separator.empty()) {
    // One that reaches `least` or begins before the cut ends the portion: it must not be cut itself.
    const size_t from = std::max(begin, least - std::min(least, separator.size() - 1));
    const size_t found = text.substr(0, std::min(text.size(), cut + separator.size() - 1)).find(separator, from);
    if (found != std::string_view::npos) return found + separator.size();
  }
  ends_document = cut == text.size();
  return cut;
}

std::optional<Portion> CorpusReader::next() {
  while (place_.input < files_.size()) {
    const fs::path& path = files_[place_.input];
    if (!file_) {
      file_ = map_text(path);
      kind_ = corpus_kind(path, file_->text(), options_);
    }
    const std::string_view text = file_->text();
    require<IoError>(place_.offset <= text.size(), "{}: has become shorter, {} bytes", path.string(), text.size());
    if (place_.offset == text.size()) {
      file_.reset();
      place_ = {place_.input + 1, 0, 0};
      continue;
    }
    Portion portion;
    portion.file = file_;
    portion.name = path.string();
    portion.format = kind_.format;
    portion.layout = kind_.layout;
    portion.begin = place_;
    portion.begins_document = !within_document_;
    const bool records = portion.format != CorpusFormat::text;
    const size_t end =
        records ? end_of_records(text, place_.offset) : end_of_text(text, place_.offset, portion.ends_document);
    portion.bytes = text.substr(place_.offset, end - place_.offset);
    place_.offset = end;
    if (records) place_.line += std::count(portion.bytes.begin(), portion.bytes.end(), '\n');
    within_document_ = !portion.ends_document;
    portion.end = place_;
    return portion;
  }
  return std::nullopt;
}

namespace {

void visit_text(const Portion& portion, const CorpusOptions& options, CorpusVisitor& visitor) {
  const size_t zero = portion.bytes.find('\0');
  require<IoError>(zero == std::string_view::npos, "{}: byte 0 at offset {}: expected text, this is a binary file",
                   portion.name, portion.begin.offset + zero);
  std::string_view rest = portion.bytes;
  bool begins = portion.begins_document;
  while (true) {
    const size_t end = options.separator.empty() ? std::string_view::npos : rest.find(options.separator);
    const bool separated = end != std::string_view::npos;
    const std::string_view text = rest.substr(0, end);
    if (!begins || !text.empty()) visitor.text(text, begins, separated || portion.ends_document);
    if (!separated) return;
    rest.remove_prefix(end + options.separator.size());
    if (rest.empty()) return;  // the next portion begins with the next document
    begins = true;
  }
}

template <class AnyJson>
AnyJson parsed(std::string_view line) {
  try {
    if constexpr (std::same_as<AnyJson, OrderedJson>) return parse_record(line, /*allow_exceptions=*/true);
    return AnyJson::parse(line);
  } catch (const typename AnyJson::parse_error& error) {
    std::string_view beginning = line.substr(0, 40);
    beginning.remove_suffix(incomplete_utf8_tail(beginning));
    fail<ConfigError>("column {}: is no JSON: \"{}\"", error.byte, beginning);
  }
}

void visit_record(std::string_view line, CorpusFormat format, const std::string& name, CorpusVisitor& visitor) {
  if (format == CorpusFormat::chat) return visitor.conversation(read_conversation(parsed<OrderedJson>(line)));
  if (format == CorpusFormat::scored) return visitor.scored(read_scored(parsed<OrderedJson>(line), name));
  if (format == CorpusFormat::prompts) return visitor.prompt(read_prompt(parsed<OrderedJson>(line)));
  if (format == CorpusFormat::completions) return visitor.completed(read_completed(parsed<OrderedJson>(line)));
  if (is_of_answers(format)) {
    const auto record = parsed<OrderedJson>(line);
    return is_labelled(record) ? visitor.labelled(read_labelled(record)) : visitor.preference(read_preference(record));
  }
  const Json json = parsed<Json>(line);
  require<ConfigError>(json.is_object(), "expected an object with the field \"{}\", found {}", name,
                       describe_json(json));
  const auto field = json.find(name);
  require<ConfigError>(field != json.end(),
                       "has no field \"{}\"; --field, or data.field of a run, names the one with the text", name);
  require<ConfigError>(field->is_string(), "the field \"{}\" holds {}, expected a string", name, describe_json(*field));
  const auto& text = field->get_ref<const std::string&>();
  if (!text.empty()) visitor.text(text, true, true);
}

/// Collects the tokens of documents.
class Encoder final : public CorpusVisitor {
 public:
  Encoder(const CorpusOptions& options, const Tokenizer& tokenizer, EncodedPortion& out)
      : options_(options), tokenizer_(tokenizer), out_(out) {}

  void text(std::string_view text, bool begins, bool ends) override {
    if (begins) out_.starts.push_back(out_.ids.size()), tokenizer_.begin_document(out_.ids);
    tokenizer_.encode(text, out_.ids, {.specials = options_.parse_special_tokens, .at_start = begins});
    if (ends) tokenizer_.end_document(out_.ids);
  }
  void conversation(const ChatRecord& record) override {
    if (!template_) template_.emplace(template_of(options_, tokenizer_));
    const ChatTemplate::Tokens tokens = template_->conversation(record.messages, record.variables);
    for (const size_t start : tokens.starts) out_.starts.push_back(out_.ids.size() + start);
    out_.ids.insert(out_.ids.end(), tokens.ids.begin(), tokens.ids.end());
    out_.targets.insert(out_.targets.end(), tokens.targets.begin(), tokens.targets.end());
  }

 private:
  const CorpusOptions& options_;
  const Tokenizer& tokenizer_;
  std::optional<ChatTemplate> template_;  // made when there is a conversation
  EncodedPortion& out_;
};

}  // namespace

namespace {

/// Calls f(record, line) for each record of a portion, and the line where it begins, from 1.
template <class F>
void for_each_record(const Portion& portion, F&& f) {
  const std::string_view bytes = portion.bytes;
  int64_t line = portion.begin.line + 1;
  if (portion.layout == RecordLayout::lines) {
    for (size_t begin = 0; begin < bytes.size(); ++line) {
      const size_t end = std::min(bytes.find('\n', begin), bytes.size());
      const std::string_view record = bytes.substr(begin, end - begin);
      begin = end + 1;
      if (record.find_first_not_of(" \t\r") != std::string_view::npos) f(record, line);
    }
    return;
  }
  RecordReader records(bytes, portion.layout, portion.begin.offset == 0);
  const char* counted = bytes.data();
  while (const auto record = records.next()) {
    line += std::count(counted, record->data(), '\n');
    counted = record->data();
    f(*record, line);
  }
}

}  // namespace

void CorpusVisitor::preference(const PreferenceRecord& /*record*/) {
  fail<ConfigError>(
      "is a pair of answers, of which one was chosen: alignment.method = \"dpo\" (orpo, cpo) in a run's file trains on "
      "such pairs");
}

void CorpusVisitor::labelled(const LabelledRecord& /*record*/) {
  fail<ConfigError>("is an answer with a label: alignment.method = \"kto\" in a run's file trains on such answers");
}

void CorpusVisitor::scored(const ScoredRecord& /*record*/) {
  fail<ConfigError>("is a text with a label: alignment.method = \"classify\" in a run's file trains on such texts");
}

void CorpusVisitor::prompt(const PromptRecord& /*record*/) {
  fail<ConfigError>(
      "is a prompt alone: alignment.method = \"grpo\" in a run's file learns from answers to such prompts");
}

void CorpusVisitor::completed(const LabelledRecord& /*record*/) {
  fail<ConfigError>("is an answer to imitate: alignment.method = \"gkd\" in a run's file learns from such answers");
}

void visit_documents(const Portion& portion, const CorpusOptions& options, CorpusVisitor& visitor) {
  if (portion.format == CorpusFormat::text) return visit_text(portion, options, visitor);
  for_each_record(portion, [&](std::string_view record, int64_t line) {
    try {
      visit_record(record, portion.format, options.field, visitor);
    } catch (const ConfigError& error) {
      throw ConfigError(fmt::format("{}:{}: {}", portion.name, line, error.what()));
    }
  });
}

EncodedPortion encode_portion(const Portion& portion, const CorpusOptions& options, const Tokenizer& tokenizer) {
  EncodedPortion out;
  out.ids.reserve(portion.bytes.size() / 3);
  Encoder encoder(options, tokenizer, out);
  visit_documents(portion, options, encoder);
  return out;
}

CutPoint cut_point_of(const Tokenizer& tokenizer) {
  return [&tokenizer](std::string_view text, size_t from) { return tokenizer.cut_point(text, from); };
}

}  // namespace nought
