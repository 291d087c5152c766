// Values in Thrift's compact protocol, in which Parquet files describe themselves.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace nought {

/// A value with all that is in it.
struct ThriftValue {
  enum class Kind : uint8_t { none, integer, real, bytes, list, structure };

  Kind kind = Kind::none;
  int64_t integer = 0;  // integers, and 0 or 1 for booleans
  double real = 0;
  std::string_view bytes = {};          // within what was read
  std::vector<ThriftValue> items = {};  // a list's, or a structure's fields
  std::vector<int> ids = {};            // a structure: the number of each field

  /// A field of a structure; of the kind none if it is not there.
  const ThriftValue& field(int id) const;
  /// A field that is an integer, or what stands in for one that is missing.
  int64_t integer_of(int id, int64_t missing) const;
  /// A field that must be there. IoError.
  int64_t integer_of(int id) const;
  /// The items of a field that is a list; none if it is missing. IoError if it is something else.
  const std::vector<ThriftValue>& list_of(int id) const;
};

/// Reads a structure at the beginning of `bytes`, which it takes away. Fields with maps are of the kind none. IoError,
/// without the name of the file, if the bytes end within it or are none.
ThriftValue read_thrift(std::string_view& bytes);

/// An unsigned number in groups of seven bits, the lowest first, which it takes away. IoError.
uint64_t read_varint(std::string_view& bytes);
/// A number whose lowest bit is its sign. IoError.
int64_t read_zigzag(std::string_view& bytes);
/// Takes that many bytes away. IoError if there are fewer.
std::string_view take_bytes(std::string_view& bytes, uint64_t count);

}  // namespace nought
