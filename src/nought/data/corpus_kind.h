// What a file of data holds, found by a look at its beginning.
//
// Design goals: no file is trained as something else than what it is. Conversations are found whatever the file is
// called, and whether they stand on a line each or in one JSON list; what is no text is refused by its name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "nought/chat/conversation.h"
#include "nought/data/formats.h"

namespace nought {

struct CorpusOptions;

/// How the JSON records of a file follow each other.
enum class RecordLayout : uint8_t {
  lines,   // one on each line
  values,  // one behind the other, each over any number of lines
  list     // in one JSON list
};

struct CorpusKind {
  CorpusFormat format = CorpusFormat::text;
  RecordLayout layout = RecordLayout::lines;
  std::optional<ConversationForm> form = {};  // of its first conversation, or of the messages of its first pair
  std::string unknown_keys = {};  // of the first record of a JSON file that is read as text; "" for any other
};

/// What `file` with this content holds: what options.format says; else conversations or texts in options.field if its
/// first record is one; and any other file but *.jsonl and *.ndjson is text. ConfigError for what is no text, and
/// for pairs of answers by preference.
CorpusKind corpus_kind(const std::filesystem::path& file, std::string_view text, const CorpusOptions& options);

/// Whether the first record of a file with this content is a pair of answers of which one was chosen.
bool begins_with_pair(std::string_view text);

/// Why these bytes, a file's, are no text: "a PDF document: extract its text"; "" if they are text. It looks at the
/// beginning. A byte 0 is for visit_documents() to find, unless the beginning names what it belongs to.
std::string why_not_text(std::string_view bytes);

/// The records of a stretch of a file in the layouts `values` and `list`.
class RecordReader {
 public:
  /// begins_file: the stretch is where the list begins, if there is one.
  RecordReader(std::string_view text, RecordLayout layout, bool begins_file);
  /// The next record's text, not checked; nothing at the end. What stands behind a list counts as a record.
  std::optional<std::string_view> next();
  /// Where the last record ended.
  size_t position() const { return at_; }

 private:
  void skip_between();

  std::string_view text_;
  bool list_;
  size_t at_ = 0;
};

}  // namespace nought
