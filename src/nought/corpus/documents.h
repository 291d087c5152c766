// Documents: what filters and searches for duplicates read, a text with the JSON record that it came from.
//
// Files of JSON lines or of text, also compressed ones, are read once from beginning to end, a batch at a time, so that
// memory does not grow with them. The batches are a function of the input alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nought/base/json_fwd.h"
#include "nought/io/byte_source.h"

namespace nought {

struct DocumentOptions {
  std::string field = "text";            // JSON lines: the key that holds the text
  std::string separator = {};            // text: what separates documents; "": a file is one document
  size_t batch_bytes = size_t{1} << 20;  // the least size of a batch
  size_t max_document_bytes = size_t{256} << 20;
};

/// A place where a document begins: byte `offset` of the decompressed content of file number `file`, in its line
/// `line`. All count from 0.
struct DocumentPlace {
  size_t file = 0;
  int64_t offset = 0, line = 0;
  bool operator==(const DocumentPlace&) const = default;
};

/// One or more documents of a file, not yet parsed.
struct DocumentBatch {
  std::string name;       // the file's
  std::string separator;  // what separates texts; JSON lines have "\n"
  std::string field;      // "": text
  std::string bytes;
  DocumentPlace begin, end;
};

struct Document {
  std::string_view record;  // its JSON line; empty for text
  std::string text;
  size_t file = 0;
  /// A string of its record; "" if there is none. The record is parsed again.
  std::string string_of(const std::string& key) const;
  /// The JSON line of this document with another text: all that the record has, in its order. Ends with '\n'.
  std::string line_with(std::string_view text, const std::string& field) const;
};

class DocumentReader {
 public:
  /// Reads from `place` on, where a document must begin.
  DocumentReader(std::vector<std::filesystem::path> files, DocumentOptions options, DocumentPlace place = {});
  /// The next batch; nothing at the end. IoError; ConfigError for what is no text, and for a document above the limit.
  std::optional<DocumentBatch> next();
  /// How many bytes of the files, compressed as they are, were read.
  int64_t file_bytes() const;

 private:
  void open();
  void fill(size_t bytes);
  size_t end_of_batch();

  std::vector<std::filesystem::path> files_;
  DocumentOptions options_;
  DocumentPlace place_;
  std::unique_ptr<ByteSource> source_;
  bool is_json_ = false, ended_ = false;
  std::string buffer_;
  int64_t closed_bytes_ = 0;
};

/// Calls f for each document of a batch that has a text, in order. ConfigError names file and line of a record that is
/// no JSON object with the field, and of a text that is no UTF-8.
void for_each_document(const DocumentBatch& batch, const std::function<void(const Document&)>& f);

/// Calls f for each record of a batch, with its text, or "" if it has none: for files whose records may have other
/// keys. The record of text is null. ConfigError for what is no JSON.
void for_each_record(const DocumentBatch& batch, const std::function<void(const std::string&, const Json&)>& f);

/// Files for DocumentReader: those that the patterns match, see expand_data_files(), each once and sorted by path, so
/// that the order on the command line does not matter. ConfigError if one is `output` or lies in it.
std::vector<std::filesystem::path> input_files(const std::vector<std::string>& patterns,
                                               const std::vector<std::filesystem::path>& outputs);

}  // namespace nought
