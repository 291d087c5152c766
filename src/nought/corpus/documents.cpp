#include "nought/corpus/documents.h"

#include <algorithm>

#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/base/text.h"
#include "nought/chat/record_json.h"
#include "nought/data/corpus_kind.h"
#include "nought/data/token_folder.h"
#include "nought/text/unicode.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kBlanks = " \t\r\n";

/// Whether a file that begins so has a JSON object on each line.
bool is_json_lines(const fs::path& file, std::string_view beginning) {
  const std::string why_not = why_not_text(beginning);
  require<ConfigError>(why_not.empty(), "{}: expected text, this is {}", file.string(), why_not);
  const size_t first = beginning.find_first_not_of(kBlanks);
  const char begin = first == std::string_view::npos ? ' ' : beginning[first];
  const fs::path name = decoded_name(file);
  const bool named = name.extension() == ".jsonl" || name.extension() == ".ndjson" || name.extension() == ".json";
  require<ConfigError>(!named || begin != '[', "{}: is a JSON list: write one record on each line", file.string());
  return named || begin == '{';
}

std::string_view without_blanks(std::string_view line) {
  const size_t begin = line.find_first_not_of(kBlanks);
  return begin == std::string_view::npos ? "" : line.substr(begin, line.find_last_not_of(kBlanks) + 1 - begin);
}

/// The JSON of a line. ConfigError without the place.
Json parsed_line(std::string_view line) {
  const size_t valid = valid_utf8_prefix(line);
  require<ConfigError>(valid == line.size(), "column {}: is no UTF-8", valid + 1);
  try {
    return Json::parse(line);
  } catch (const Json::parse_error& error) {
    std::string_view beginning = line.substr(0, 40);
    beginning.remove_suffix(incomplete_utf8_tail(beginning));
    fail<ConfigError>("column {}: is no JSON: \"{}\"", error.byte, one_line(beginning));
  }
}

/// The text of a record. ConfigError without the place.
std::string text_of_record(Json json, const std::string& field) {
  if (!json.is_object())
    fail<ConfigError>("expected an object with the field \"{}\", found {}", field, describe_json(json));
  const auto text = json.find(field);
  require<ConfigError>(text != json.end(), "has no field \"{}\"; --field names the one with the text", field);
  if (!text->is_string())
    fail<ConfigError>("the field \"{}\" holds {}, expected a string", field, describe_json(*text));
  return std::move(text->get_ref<std::string&>());
}

/// Calls f(line) for each line that is not blank. A ConfigError gets the place.
template <class F>
void visit_lines(const DocumentBatch& batch, F&& f) {
  const std::string_view bytes = batch.bytes;
  int64_t number = batch.begin.line;
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t end = std::min(bytes.find('\n', begin), bytes.size());
    const std::string_view line = without_blanks(bytes.substr(begin, end - begin));
    begin = end + 1;
    ++number;
    if (line.empty()) continue;
    try {
      f(line);
    } catch (const ConfigError& error) {
      throw ConfigError(fmt::format("{}:{}: {}", batch.name, number, error.what()));
    }
  }
}

void visit_texts(const DocumentBatch& batch, const std::function<void(const Document&)>& f) {
  const std::string_view bytes = batch.bytes;
  const size_t valid = valid_utf8_prefix(bytes), zero = bytes.find('\0');
  require<ConfigError>(valid == bytes.size(), "{}: the byte at offset {} is no UTF-8", batch.name,
                       batch.begin.offset + static_cast<int64_t>(valid));
  require<ConfigError>(zero == std::string_view::npos, "{}: byte 0 at offset {}: expected text, this is a binary file",
                       batch.name, batch.begin.offset + static_cast<int64_t>(zero));
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t found = batch.separator.empty() ? std::string_view::npos : bytes.find(batch.separator, begin);
    const size_t end = std::min(found, bytes.size());
    if (end > begin) f({.record = {}, .text = std::string(bytes.substr(begin, end - begin)), .file = batch.begin.file});
    begin = end + (found == std::string_view::npos ? 0 : batch.separator.size());
    if (found == std::string_view::npos) break;
  }
}

}  // namespace

std::string Document::string_of(const std::string& key) const {
  if (record.empty()) return "";
  const Json json = Json::parse(record, nullptr, /*allow_exceptions=*/false);
  const auto found = json.is_object() ? json.find(key) : json.end();
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string Document::line_with(std::string_view changed, const std::string& field) const {
  OrderedJson json = record.empty() ? OrderedJson::object() : parse_record(record, /*allow_exceptions=*/true);
  json[field] = changed;
  return json.dump() + "\n";
}

DocumentReader::DocumentReader(std::vector<fs::path> files, DocumentOptions options, DocumentPlace place)
    : files_(std::move(files)), options_(std::move(options)), place_(place) {}

int64_t DocumentReader::file_bytes() const { return closed_bytes_ + (source_ ? source_->file_bytes() : 0); }

/// Appends to the buffer until it has this many bytes, or the file ends.
void DocumentReader::fill(size_t bytes) {
  if (ended_ || buffer_.size() >= bytes) return;
  const size_t before = buffer_.size();
  buffer_.resize(bytes);
  const size_t count = source_->read(std::span(buffer_).subspan(before));
  ended_ = count < bytes - before;
  buffer_.resize(before + count);
}

void DocumentReader::open() {
  const fs::path& file = files_[place_.file];
  source_ = open_bytes(file);
  ended_ = false;
  buffer_.clear();
  constexpr size_t kLook = size_t{1} << 16;
  fill(kLook);
  is_json_ = is_json_lines(file, buffer_);
  for (auto skip = static_cast<size_t>(place_.offset); skip > 0;) {
    const size_t part = std::min(skip, buffer_.size());
    require<IoError>(part > 0, "{}: has become shorter since this was begun", file.string());
    buffer_.erase(0, part);
    skip -= part;
    if (skip > 0) fill(kLook);
  }
}

/// Where the batch in the buffer ends: behind a line, behind a separator, or at the end of the file.
size_t DocumentReader::end_of_batch() {
  const std::string& separator = is_json_ ? "\n" : options_.separator;
  size_t from = options_.batch_bytes;
  fill(from);
  while (!ended_ || from < buffer_.size()) {
    // A separator may begin before what was searched.
    const size_t begin = from - std::min(from, std::max<size_t>(separator.size(), 1) - 1);
    const size_t found = separator.empty() ? std::string::npos : buffer_.find(separator, begin);
    if (found != std::string::npos) return found + separator.size();
    if (ended_) break;
    require<ConfigError>(buffer_.size() <= options_.max_document_bytes,
                         "{}: the {} that begins at offset {} has more than {}: {}", files_[place_.file].string(),
                         is_json_ ? fmt::format("line {}", place_.line + 1) : "document", place_.offset,
                         format_bytes(static_cast<int64_t>(options_.max_document_bytes)),
                         is_json_ ? "is it one record on each line?" : "--separator says where documents end");
    from = buffer_.size();
    fill(buffer_.size() * 2);
  }
  return buffer_.size();
}

std::optional<DocumentBatch> DocumentReader::next() {
  while (place_.file < files_.size()) {
    if (!source_) open();
    const size_t end = end_of_batch();
    if (end == 0) {
      closed_bytes_ += source_->file_bytes();
      source_.reset();
      place_ = {place_.file + 1, 0, 0};
      continue;
    }
    DocumentBatch batch{.name = files_[place_.file].string(),
                        .separator = options_.separator,
                        .field = is_json_ ? options_.field : "",
                        .bytes = buffer_.substr(0, end),
                        .begin = place_,
                        .end = place_};
    buffer_.erase(0, end);
    batch.end.offset += static_cast<int64_t>(end);
    batch.end.line += std::count(batch.bytes.begin(), batch.bytes.end(), '\n');
    place_ = batch.end;
    return batch;
  }
  return std::nullopt;
}

void for_each_document(const DocumentBatch& batch, const std::function<void(const Document&)>& f) {
  if (batch.field.empty()) return visit_texts(batch, f);
  visit_lines(batch, [&](std::string_view line) {
    f({.record = line, .text = text_of_record(parsed_line(line), batch.field), .file = batch.begin.file});
  });
}

void for_each_record(const DocumentBatch& batch, const std::function<void(const std::string&, const Json&)>& f) {
  if (batch.field.empty()) return visit_texts(batch, [&](const Document& document) { f(document.text, Json()); });
  visit_lines(batch, [&](std::string_view line) {
    const Json json = parsed_line(line);
    const auto text = json.is_object() ? json.find(batch.field) : json.end();
    f(text != json.end() && text->is_string() ? text->get<std::string>() : "", json);
  });
}

std::vector<fs::path> input_files(const std::vector<std::string>& patterns, const std::vector<fs::path>& outputs) {
  const DataFiles found = find_data_files(patterns);
  for (const fs::path& file : found.files)
    for (const fs::path& output : outputs) {
      const fs::path inner = fs::weakly_canonical(file), outer = fs::weakly_canonical(output);
      const bool within = std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
      require<ConfigError>(!within, "{}: is an input and lies in the output folder {}: give another folder",
                           file.string(), output.string());
    }
  return found.files;
}

}  // namespace nought
