// What a Parquet file holds: the fields of its rows, their columns, and where the values of each lie.
//
// Source: the format's specification, parquet-format 2.11 (parquet.thrift, LogicalTypes.md). Old forms of lists, which
// Spark and others still write, are read by its rules of compatibility.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nought {

/// How the values of a column are stored, by the format's numbers.
enum class ParquetType : uint8_t { boolean, int32, int64, int96, float32, float64, byte_array, fixed_bytes };

/// What a stored value means, where it is more than the number or the bytes.
enum class ParquetMeaning : uint8_t { none, text, unsigned_integer, decimal, date, time, timestamp, half, uuid };

struct ParquetColumn {
  std::string path = {};  // the names that lead to it: "messages.list.element.role"
  ParquetType type = ParquetType::byte_array;
  int64_t length = 0;  // of fixed_bytes
  ParquetMeaning meaning = ParquetMeaning::none;
  int64_t scale = 0;        // decimal: digits behind the point
  int64_t parts = 1;        // time and timestamp: how many make a second
  bool is_utc = false;      // timestamp
  int most_definition = 0;  // the definition level of a value that is there
  int most_repetition = 0;
};

/// A field of a row, or what is in one.
struct ParquetField {
  enum class Shape : uint8_t { value, record, list, map };

  std::string name = {};
  Shape shape = Shape::value;
  bool optional = false;
  int definition = 0;                     // a smaller definition level: the field is null
  int elements = 0;                       // list and map: a smaller definition level: it is empty
  int repetition = 0;                     // list and map: the repetition level of what is not its first element
  std::vector<ParquetField> fields = {};  // a record's; a list's element; a map's key and value
  size_t first_column = 0, end_column = 0;
};

/// The values of a column in a group of rows.
struct ParquetChunk {
  size_t begin = 0, end = 0;  // the pages, in bytes of the file
  int64_t codec = 0;          // by the format's numbers
  int64_t values = 0;         // nulls included
};

struct ParquetGroup {
  int64_t rows = 0;
  std::vector<ParquetChunk> chunks;  // one for each column
};

struct ParquetLayout {
  ParquetField row;
  std::vector<ParquetColumn> columns;
  std::vector<ParquetGroup> groups;
};

inline constexpr std::string_view kParquet = "PAR1";  // how a file begins and ends

/// Reads what stands at the end of the file. IoError, without the name of the file, if it is cut off or damaged, and
/// for an encrypted one.
ParquetLayout read_parquet_layout(std::string_view file);

}  // namespace nought
