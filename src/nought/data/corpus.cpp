#include "nought/data/corpus.h"

#include <algorithm>
#include <cstring>

#include <fmt/ranges.h>

#include "nought/base/error.h"

namespace nought {

namespace fs = std::filesystem;

CorpusReader::CorpusReader(std::vector<fs::path> files, CorpusOptions options, CutPoint cut_point, CorpusPlace place)
    : files_(std::move(files)), options_(std::move(options)), cut_point_(std::move(cut_point)), place_(place) {}

namespace {

/// The first line that is not blank, as JSON; null if there is none, or if it is no JSON.
OrderedJson first_record(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  const std::string_view line = text.substr(begin, text.substr(begin).find('\n'));
  OrderedJson json = OrderedJson::parse(line, nullptr, /*allow_exceptions=*/false);
  return json.is_discarded() ? OrderedJson() : json;
}

/// What the options or the file's name say; nothing if that takes a look into the file.
std::optional<CorpusFormat> format_by_name(const fs::path& file, const CorpusOptions& options) {
  require<ConfigError>(file.extension() != ".parquet" && file.extension() != ".arrow",
                       "{}: {} files are not read: write its rows as JSON lines, with pandas.read_parquet(...)"
                       ".to_json(..., orient=\"records\", lines=True) or datasets' to_json()",
                       file.string(), file.extension() == ".arrow" ? "Arrow" : "Parquet");
  if (options.format) return options.format;
  const fs::path extension = file.extension();
  return extension == ".jsonl" || extension == ".ndjson" ? std::nullopt : std::optional(CorpusFormat::text);
}

CorpusFormat format_of_lines(std::string_view text) {
  return conversation_form(first_record(text)) ? CorpusFormat::chat : CorpusFormat::jsonl;
}

ChatTemplate template_of(const CorpusOptions& options, const Tokenizer& tokenizer) {
  return options.chat ? ChatTemplate(*options.chat, tokenizer) : ChatTemplate(chat_format_of(tokenizer), tokenizer);
}

}  // namespace

CorpusFormat corpus_format(const fs::path& file, const CorpusOptions& options) {
  const std::optional<CorpusFormat> named = format_by_name(file, options);
  return named ? *named : format_of_lines(MappedFile(file).text());
}

CorpusOptions with_template(CorpusOptions options, std::span<const fs::path> files, const std::string& wanted,
                            const fs::path& tokenizer_path, const Tokenizer& tokenizer) {
  const auto is_chat = [&](const fs::path& file) { return corpus_format(file, options) == CorpusFormat::chat; };
  const auto chats = std::count_if(files.begin(), files.end(), is_chat);  // every file was looked at
  if (wanted.empty() && chats == 0) return options;
  options.chat = chat_source_for(wanted, tokenizer_path, tokenizer);
  const ChatTemplate readable(*options.chat, tokenizer);  // or says why not
  readable.require_markers();
  return options;
}

std::vector<std::string> describe_formats(std::span<const fs::path> files, const CorpusOptions& options,
                                          const Tokenizer& tokenizer) {
  std::vector<std::pair<std::string, std::vector<std::string>>> kinds;  // and their files
  for (const fs::path& file : files) {
    const CorpusFormat format = corpus_format(file, options);
    if (format == CorpusFormat::text) continue;
    std::string kind = fmt::format("JSON lines with the text in \"{}\"", options.field);
    if (format == CorpusFormat::chat) {
      const ChatTemplate chat = template_of(options, tokenizer);
      const auto form = conversation_form(first_record(MappedFile(file).text()));
      kind = fmt::format("conversations{}, written as {}; what assistants say is trained",
                         form ? fmt::format(" of {}", enum_name(*form)) : "", chat.name());
      std::vector<std::string> refused = chat.refused_markers(), spelled = chat.missing_markers();
      std::erase_if(spelled, [&](const std::string& each) { return std::count(refused.begin(), refused.end(), each); });
      if (!spelled.empty()) kind += fmt::format("; written as text, for want of a token: {}", fmt::join(spelled, ", "));
      if (!refused.empty())
        kind += fmt::format("; a conversation that needs one of {} is refused: the tokenizer has no such token",
                            fmt::join(refused, ", "));
    }
    auto found = std::find_if(kinds.begin(), kinds.end(), [&](const auto& each) { return each.first == kind; });
    if (found == kinds.end()) found = kinds.insert(found, {kind, {}});
    found->second.push_back(file.string());
  }
  std::vector<std::string> lines;
  for (const auto& [kind, names] : kinds)
    lines.push_back(fmt::format("{}{}: {}", names.front(),
                                names.size() > 1 ? fmt::format(" and {} more", names.size() - 1) : "", kind));
  return lines;
}

size_t CorpusReader::end_of_lines(std::string_view text, size_t begin) const {
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
      file_ = std::make_shared<MappedFile>(path);
      const std::optional<CorpusFormat> named = format_by_name(path, options_);
      format_ = named ? *named : format_of_lines(file_->text());
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
    portion.format = format_;
    portion.begin = place_;
    portion.begins_document = !within_document_;
    const bool lines = portion.format != CorpusFormat::text;
    const size_t end =
        lines ? end_of_lines(text, place_.offset) : end_of_text(text, place_.offset, portion.ends_document);
    portion.bytes = text.substr(place_.offset, end - place_.offset);
    place_.offset = end;
    if (lines) place_.line += std::count(portion.bytes.begin(), portion.bytes.end(), '\n');
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
    return AnyJson::parse(line);
  } catch (const typename AnyJson::parse_error& error) {
    fail<ConfigError>("column {}: is no JSON: \"{}\"", error.byte, line.substr(0, 40));
  }
}

void visit_line(std::string_view line, CorpusFormat format, const std::string& name, CorpusVisitor& visitor) {
  if (format == CorpusFormat::chat) return visitor.conversation(read_conversation(parsed<OrderedJson>(line)));
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

void visit_documents(const Portion& portion, const CorpusOptions& options, CorpusVisitor& visitor) {
  if (portion.format == CorpusFormat::text) return visit_text(portion, options, visitor);
  int64_t number = portion.begin.line;
  for (size_t begin = 0; begin < portion.bytes.size();) {
    ++number;
    const size_t end = std::min(portion.bytes.find('\n', begin), portion.bytes.size());
    const std::string_view line = portion.bytes.substr(begin, end - begin);
    begin = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    try {
      visit_line(line, portion.format, options.field, visitor);
    } catch (const ConfigError& error) {
      throw ConfigError(fmt::format("{}:{}: {}", portion.name, number, error.what()));
    }
  }
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
