// The values of one column of a Parquet file, in the order of rows, a page at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nought/io/parquet_layout.h"

namespace nought {

/// A stored value: bytes of those types that are bytes (an int96 too), a number of all others.
struct ParquetValue {
  int64_t integer = 0;
  double real = 0;
  std::string_view bytes = {};  // valid until the column goes on
};

/// Walks through the entries of a column. An entry is a value, or says by its levels that one is missing.
class ParquetColumnReader {
 public:
  /// Reads from the chunk's beginning on. `file` and `column` must outlive it.
  ParquetColumnReader(std::string_view file, const ParquetColumn& column, const ParquetChunk& chunk);
  ParquetColumnReader(const ParquetColumnReader&) = delete;  // values lie in its strings
  ParquetColumnReader& operator=(const ParquetColumnReader&) = delete;

  bool ended() const { return entries_ == 0; }
  int repetition() const { return repetitions_.empty() ? 0 : repetitions_[at_]; }
  int definition() const { return definitions_.empty() ? column_->most_definition : definitions_[at_]; }
  bool has_value() const { return definition() == column_->most_definition; }
  /// The value of an entry that has one.
  ParquetValue value() const;
  /// Goes on to the next entry. IoError, with the offset of the page in the file.
  void next();

 private:
  struct Page;

  void open_page();
  bool read_page();
  std::string_view unpacked(const Page& page, std::string_view stored, size_t size);
  void read_dictionary(const Page& page);
  void read_data(const Page& page);
  void read_levels(const Page& page, std::string_view& bytes);
  void read_values(int64_t encoding, std::string_view bytes, size_t count);
  std::string_view together(std::string_view bytes, size_t size, size_t count);
  std::vector<ParquetValue> plain_values(std::string_view bytes, size_t count) const;
  std::vector<ParquetValue> byte_values(std::string_view bytes, size_t count, bool shares_beginnings);

  std::string_view file_;
  const ParquetColumn* column_;
  int64_t codec_;
  size_t page_ = 0, end_ = 0;  // the next page, and where the chunk ends
  int64_t entries_;            // from the one at at_ on

  std::string dictionary_bytes_, page_bytes_;
  std::vector<ParquetValue> dictionary_;

  std::vector<uint8_t> repetitions_, definitions_;
  std::vector<ParquetValue> values_;
  std::vector<uint32_t> indices_;  // into the dictionary, in the place of values
  std::string joined_;             // values that share beginnings, or whose bytes lie apart
  size_t in_page_ = 0, at_ = 0;    // how many entries the page has, and the one that is next
  size_t value_ = 0;               // which value that is
};

}  // namespace nought
