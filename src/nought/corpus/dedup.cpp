#include "nought/corpus/dedup.h"

#include <algorithm>

#include "nought/base/error.h"
#include "nought/base/visit.h"
#include "nought/corpus/characters.h"
#include "nought/corpus/repeats.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

constexpr const char* kRepeatsName = ".nought-repeats.bin";

/// The text without the lines of these numbers, in order.
std::string without_lines(std::string_view text, const std::vector<uint64_t>& lines) {
  std::string rest;
  auto removed = lines.begin();
  uint64_t number = 0;
  for (size_t begin = 0; begin < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    if (removed != lines.end() && *removed == number)
      ++removed;
    else
      rest += text.substr(begin, end - begin);
    begin = end;
  }
  return rest;
}

/// The text without the stretches of `length` words that begin at these words; counts the words.
std::string without_stretches(std::string_view text, const std::vector<uint64_t>& starts, uint64_t length,
                              int64_t& removed) {
  const std::vector<TextWord> words = words_with_places(text);
  std::string rest;
  size_t copied = 0;
  for (size_t i = 0; i < starts.size();) {
    const uint64_t first = starts[i];
    uint64_t end = first + length;
    for (++i; i < starts.size() && starts[i] <= end; ++i) end = starts[i] + length;
    rest += text.substr(copied, words[first].begin - copied);
    copied = words[end - 1].end;
    removed += static_cast<int64_t>(end - first);
  }
  return rest += text.substr(copied);
}

/// Writes what stays of the documents.
class DedupWriter {
 public:
  DedupWriter(const DedupOptions& options, CorpusFolder& folder, RepeatsReader& repeats)
      : options_(options), folder_(folder), repeats_(repeats) {
    if (!folder.state().report.is_null())
      report_ = from_json<DedupReport>(folder.state().report, Origins(options.output.folder.string()));
    report_.clusters = static_cast<int64_t>(repeats.header().clusters);
    report_.largest_cluster = static_cast<int64_t>(repeats.header().largest_cluster);
  }

  DedupReport write(const DedupObserver& observe) {
    DocumentReader reader(options_.inputs, options_.documents, folder_.state().place());
    while (const auto batch = reader.next()) {
      for_each_document(*batch, [this](const Document& document) { write_document(document); });
      if (folder_.is_full()) folder_.save(batch->end, to_json(report_), /*complete=*/false);
      observe("writing", reader.file_bytes());
    }
    folder_.save({options_.inputs.size(), 0, 0}, to_json(report_), /*complete=*/true);
    return report_;
  }

 private:
  void write_document(const Document& document) {
    const std::vector<uint64_t> parts = repeats_.parts_of(static_cast<uint64_t>(report_.documents++));
    report_.bytes += static_cast<int64_t>(document.text.size());
    const std::string& field = options_.documents.field;
    if (parts.empty()) {
      keep(document.text,
           document.record.empty() ? document.line_with(document.text, field) : std::string(document.record) + "\n");
      return;
    }
    const std::string rest = rest_of(document.text, parts);
    if (strip(rest).empty())
      folder_.reject(document.line_with(document.text, field));
    else
      keep(rest, document.line_with(rest, field));
  }

  std::string rest_of(const std::string& text, const std::vector<uint64_t>& parts) {
    if (options_.kind == DedupKind::substring)
      return without_stretches(text, parts, static_cast<uint64_t>(options_.substring_words), report_.repeated);
    report_.repeated += static_cast<int64_t>(parts.size());
    return options_.kind == DedupKind::lines ? without_lines(text, parts) : "";
  }

  void keep(std::string_view text, std::string_view line) {
    ++report_.kept_documents;
    report_.kept_bytes += static_cast<int64_t>(text.size());
    folder_.keep(line);
  }

  const DedupOptions& options_;
  CorpusFolder& folder_;
  RepeatsReader& repeats_;
  DedupReport report_;
};

}  // namespace

DedupReport dedup(const DedupOptions& options, const DedupObserver& observe) {
  require<ConfigError>(options.substring_words >= 1, "--substring {}: expected a number of words",
                       options.substring_words);
  require<ConfigError>(options.memory >= int64_t{1} << 20, "--memory: {} bytes are too few, give at least 1MiB",
                       options.memory);
  CorpusFolder folder(options.output, options.settings + "\n" + identity_of(options.inputs));
  if (folder.state().complete)
    return from_json<DedupReport>(folder.state().report, Origins(options.output.folder.string()));
  const fs::path file = options.output.folder / kRepeatsName;
  std::error_code ignored;
  if (folder.is_new()) fs::remove(file, ignored);
  if (!fs::exists(file, ignored)) find_repeats(options, file, observe);
  RepeatsReader repeats(file);
  DedupReport report = DedupWriter(options, folder, repeats).write(observe);
  fs::remove(file, ignored);
  return report;
}

}  // namespace nought
