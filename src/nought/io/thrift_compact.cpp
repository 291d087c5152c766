#include "nought/io/thrift_compact.h"

#include <bit>
#include <cstring>

#include "nought/base/error.h"

namespace nought {

namespace {

constexpr int kDeepestThrift = 64;

/// The types that the protocol has.
enum WireType : uint8_t {
  wire_true = 1,
  wire_false,
  wire_int8,
  wire_int16,
  wire_int32,
  wire_int64,
  wire_double,
  wire_binary,
  wire_list,
  wire_set,
  wire_map,
  wire_struct
};

uint8_t take_byte(std::string_view& bytes) { return static_cast<uint8_t>(take_bytes(bytes, 1)[0]); }

ThriftValue read_value(std::string_view& bytes, uint8_t type, int depth);

ThriftValue integer_value(int64_t integer) { return {.kind = ThriftValue::Kind::integer, .integer = integer}; }

ThriftValue read_real(std::string_view& bytes) {
  uint64_t bits;
  std::memcpy(&bits, take_bytes(bytes, sizeof(bits)).data(), sizeof(bits));
  return {.kind = ThriftValue::Kind::real, .real = std::bit_cast<double>(bits)};
}

ThriftValue read_list(std::string_view& bytes, int depth) {
  const uint8_t head = take_byte(bytes), type = head & 15;
  const uint64_t count = head >> 4 == 15 ? read_varint(bytes) : head >> 4;
  require<IoError>(count <= bytes.size(), "a list of {} items in {} bytes", count, bytes.size());
  ThriftValue value{.kind = ThriftValue::Kind::list};
  for (uint64_t i = 0; i < count; ++i) {
    const bool boolean = type == wire_true || type == wire_false;
    value.items.push_back(boolean ? integer_value(take_byte(bytes) == wire_true) : read_value(bytes, type, depth));
  }
  return value;
}

/// Passes a map by: what Parquet says in one is for other programs.
void skip_map(std::string_view& bytes, int depth) {
  const uint64_t count = read_varint(bytes);
  if (count == 0) return;
  const uint8_t types = take_byte(bytes);
  require<IoError>(count <= bytes.size(), "a map of {} items in {} bytes", count, bytes.size());
  for (uint64_t i = 0; i < count; ++i)
    for (const uint8_t type : {static_cast<uint8_t>(types >> 4), static_cast<uint8_t>(types & 15)}) {
      if (type == wire_true || type == wire_false)
        take_byte(bytes);
      else
        read_value(bytes, type, depth);
    }
}

ThriftValue read_record(std::string_view& bytes, int depth) {
  ThriftValue value{.kind = ThriftValue::Kind::structure};
  int64_t id = 0;
  while (const uint8_t head = take_byte(bytes)) {
    id = head >> 4 ? id + (head >> 4) : read_zigzag(bytes);
    require<IoError>(0 <= id && id <= INT16_MAX, "a field with the number {}", id);
    value.ids.push_back(static_cast<int>(id));
    value.items.push_back(read_value(bytes, head & 15, depth));
  }
  return value;
}

ThriftValue read_value(std::string_view& bytes, uint8_t type, int depth) {
  require<IoError>(depth < kDeepestThrift, "values in values, more than {} deep", kDeepestThrift);
  switch (type) {
    case wire_true:
    case wire_false:
      return integer_value(type == wire_true);
    case wire_int8:
      return integer_value(static_cast<int8_t>(take_byte(bytes)));
    case wire_int16:
    case wire_int32:
    case wire_int64:
      return integer_value(read_zigzag(bytes));
    case wire_double:
      return read_real(bytes);
    case wire_binary:
      return {.kind = ThriftValue::Kind::bytes, .bytes = take_bytes(bytes, read_varint(bytes))};
    case wire_list:
    case wire_set:
      return read_list(bytes, depth + 1);
    case wire_map:
      skip_map(bytes, depth + 1);
      return {};
    case wire_struct:
      return read_record(bytes, depth + 1);
    default:
      fail<IoError>("a value of the type {}, which there is not", type);
  }
}

const ThriftValue kMissing;

}  // namespace

std::string_view take_bytes(std::string_view& bytes, uint64_t count) {
  require<IoError>(count <= bytes.size(), "{} bytes are expected where {} are left", count, bytes.size());
  const std::string_view taken = bytes.substr(0, count);
  bytes.remove_prefix(count);
  return taken;
}

uint64_t read_varint(std::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const uint8_t byte = take_byte(bytes);
    value |= uint64_t{byte & 127u} << shift;
    if (byte < 128) return value;
  }
  fail<IoError>("a number of more than 64 bits");
}

int64_t read_zigzag(std::string_view& bytes) {
  const uint64_t value = read_varint(bytes);
  return static_cast<int64_t>(value >> 1 ^ (0 - (value & 1)));
}

const ThriftValue& ThriftValue::field(int id) const {
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] == id) return items[i];
  return kMissing;
}

int64_t ThriftValue::integer_of(int id, int64_t missing) const {
  const ThriftValue& value = field(id);
  return value.kind == Kind::integer ? value.integer : missing;
}

int64_t ThriftValue::integer_of(int id) const {
  const ThriftValue& value = field(id);
  require<IoError>(value.kind == Kind::integer, "the number in field {} is missing", id);
  return value.integer;
}

const std::vector<ThriftValue>& ThriftValue::list_of(int id) const {
  const ThriftValue& value = field(id);
  require<IoError>(value.kind == Kind::list || value.kind == Kind::none, "field {} is no list", id);
  return value.items;
}

ThriftValue read_thrift(std::string_view& bytes) { return read_record(bytes, 0); }

}  // namespace nought
