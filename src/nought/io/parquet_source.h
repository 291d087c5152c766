// The rows of a Parquet file as JSON lines, so that whatever reads JSON lines reads it.
//
// A row is an object with its fields in their order: lists and records become JSON's, maps objects, and text strings.
// Dates and times are strings in ISO 8601; decimals keep their digits; bytes that are no UTF-8 are base64; what JSON
// has no number for (NaN, an infinity) is null. Fields that are null are written as null. Compressed by snappy, gzip or
// Zstandard, or not. Non-goals: reading some of the columns alone; writing.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <span>
#include <string>

#include "nought/io/byte_source.h"
#include "nought/io/mapped_file.h"
#include "nought/io/parquet_column.h"
#include "nought/io/parquet_layout.h"

namespace nought {

class ParquetSource final : public ByteSource {
 public:
  /// IoError names the file, and the byte at which it is cut off or damaged.
  explicit ParquetSource(const std::filesystem::path& file);
  size_t read(std::span<char> into) override;
  int64_t file_bytes() const override;

 private:
  void open_group();
  void write_row();

  std::filesystem::path path_;
  MappedFile file_;
  ParquetLayout layout_;
  std::deque<ParquetColumnReader> columns_;  // of the group of rows that is read
  size_t group_ = 0;                         // the next one
  int64_t rows_ = 0;                         // left in this one
  int64_t done_rows_ = 0, all_rows_ = 0;
  std::string lines_;  // written and not read yet, from taken_ on
  size_t taken_ = 0;
};

}  // namespace nought
