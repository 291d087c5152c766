#include "nought/checkpoint/receipt.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "nought/base/open_file.h"
#include "nought/base/text.h"
#include "nought/io/files.h"
#include "nought/io/sha256.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

/// The whole lines of the file, without their ends.
std::vector<std::string> whole_lines(const std::string& text) {
  std::vector<std::string> lines = split(text, '\n');
  lines.pop_back();  // what is behind the last end is no line
  return lines;
}

bool is_line(const Json& json) {
  const auto has_text = [&](const char* key) { return json.contains(key) && json[key].is_string(); };
  return json.is_object() && has_text("previous") && has_text("kind") && has_text("weights") && json.contains("step") &&
         json["step"].is_number_integer() && (json["kind"] == "start" || json["kind"] == "step");
}

/// IoError unless the text is a receipt whose chain holds.
std::vector<ReceiptLine> read_chain(const fs::path& path, const std::string& text) {
  std::vector<ReceiptLine> lines;
  for (const std::string& line : whole_lines(text)) {
    Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    const std::string place = fmt::format("{}: line {}", path.string(), lines.size() + 1);
    require<IoError>(is_line(json), "{} is no line of a receipt", place);
    if (lines.empty()) require_readable(path, json.value("format", Json()), kReceiptFormat);
    require<IoError>(lines.empty() || json["previous"] == lines.back().hash,
                     "{} does not hold the hash of the line before it: one of the two was changed", place);
    lines.push_back({std::move(json), sha256_of(line)});
  }
  return lines;
}

}  // namespace

ReceiptWriter::ReceiptWriter(fs::path folder, std::string before) : last_(std::move(before)) {
  const fs::path path = std::move(folder) / kReceiptFile;
  with_io_errors(path, [&] { fs::create_directories(path.parent_path()); });
  std::string text = bytes_if_there(path).value_or("");
  const std::vector<ReceiptLine> lines = read_chain(path, text);
  const size_t end = text.rfind('\n');
  text.resize(end == std::string::npos ? 0 : end + 1);
  if (!lines.empty()) last_ = lines.back().hash;
  file_ = AppendFile(path, text);
}

std::string ReceiptWriter::add(OrderedJson line) {
  line["previous"] = last_;
  const std::string text = line.dump();
  file_.append(text + "\n");
  file_.sync();
  return last_ = sha256_of(text);
}

Receipt::Receipt(const fs::path& folder) {
  const fs::path path = folder / kReceiptFile;
  const std::optional<std::string> text = bytes_if_there(path);
  require<IoError>(text.has_value(), "{}: there is no receipt: training.receipt was not set in this run",
                   path.string());
  lines_ = read_chain(path, *text);
  require<IoError>(!lines_.empty(), "{}: has no line", path.string());
}

const ReceiptLine* Receipt::find(std::string_view hash) const {
  const auto found =
      std::find_if(lines_.begin(), lines_.end(), [&](const ReceiptLine& each) { return each.hash == hash; });
  return found == lines_.end() ? nullptr : &*found;
}

bool has_receipt(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_regular_file(folder / kReceiptFile, ignored);
}

}  // namespace nought
