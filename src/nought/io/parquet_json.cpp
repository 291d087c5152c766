#include "nought/io/parquet_json.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <iterator>
#include <vector>

#include <fmt/format.h>

#include "nought/base/base64.h"
#include "nought/base/error.h"
#include "nought/base/utf8.h"
#include "nought/tensor/dtype.h"

namespace nought {

namespace {

constexpr int64_t kDaySeconds = 86'400;
constexpr size_t kMostDecimalBytes = 64;

void append_base64(std::string& json, std::string_view bytes) {
  json += '"';
  json += encode_base64(bytes);
  json += '"';
}

template <class T>
void append_real(std::string& json, T value) {
  if (std::isfinite(value))
    fmt::format_to(std::back_inserter(json), "{}", value);
  else
    json += "null";
}

/// Appends the digits of a number, with `scale` of them behind the point.
void append_decimal(std::string& json, bool negative, std::string_view number, int64_t scale) {
  const auto behind = static_cast<size_t>(scale);
  std::string digits(number.size() <= behind ? behind + 1 - number.size() : 0, '0');
  digits += number;
  if (negative) json += '-';
  json.append(digits, 0, digits.size() - behind);
  if (behind > 0) json.append(1, '.').append(digits, digits.size() - behind, behind);
}

/// Appends a number in two's complement, whose highest byte comes first.
void append_decimal(std::string& json, std::string_view bytes, int64_t scale) {
  const bool negative = !bytes.empty() && static_cast<int8_t>(bytes[0]) < 0;
  std::vector<uint8_t> magnitude(bytes.begin(), bytes.end());
  for (size_t i = magnitude.size(), carry = 1; negative && i-- > 0;) {
    carry += static_cast<uint8_t>(~magnitude[i]);
    magnitude[i] = static_cast<uint8_t>(carry);
    carry >>= 8;
  }
  std::string digits;  // the last one first
  while (std::any_of(magnitude.begin(), magnitude.end(), [](uint8_t byte) { return byte != 0; })) {
    unsigned rest = 0;
    for (uint8_t& byte : magnitude) {
      rest = rest << 8 | byte;
      byte = static_cast<uint8_t>(rest / 10);
      rest %= 10;
    }
    digits += static_cast<char>('0' + rest);
  }
  if (digits.empty()) digits.push_back('0');
  append_decimal(json, negative, std::string(digits.rbegin(), digits.rend()), scale);
}

/// Divides towards minus infinity.
int64_t floor_div(int64_t value, int64_t by) { return value / by - (value % by < 0); }

void append_day(std::string& json, int64_t day) {
  constexpr int64_t kMostDays = 3'650'000;  // beyond year 9,999 on either side there are numbers alone
  if (day < -kMostDays || day > kMostDays) return void(fmt::format_to(std::back_inserter(json), "day {}", day));
  const std::chrono::year_month_day date{std::chrono::sys_days(std::chrono::days(day))};
  fmt::format_to(std::back_inserter(json), "{:04}-{:02}-{:02}", static_cast<int>(date.year()),
                 static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()));
}

/// A time of day, whose parts behind the second are written if there are any.
void append_time(std::string& json, int64_t second, int64_t part, int64_t parts) {
  fmt::format_to(std::back_inserter(json), "{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60);
  const int digits = parts >= 1'000'000'000 ? 9 : parts >= 1'000'000 ? 6 : 3;
  if (part != 0) fmt::format_to(std::back_inserter(json), ".{:0{}}", part, digits);
}

void append_timestamp(std::string& json, int64_t value, int64_t parts, bool is_utc) {
  const int64_t second = floor_div(value, parts), day = floor_div(second, kDaySeconds);
  json += '"';
  append_day(json, day);
  json += 'T';
  append_time(json, second - day * kDaySeconds, value - second * parts, parts);
  json += is_utc ? "Z\"" : "\"";
}

/// A timestamp of 12 bytes: nanoseconds within a day, and the day's Julian number.
void append_int96(std::string& json, std::string_view bytes) {
  constexpr int64_t kJulianOf1970 = 2'440'588, kNanos = 1'000'000'000;
  int64_t nanos;
  int32_t day;
  std::memcpy(&nanos, bytes.data(), sizeof(nanos));
  std::memcpy(&day, bytes.data() + sizeof(nanos), sizeof(day));
  require<IoError>(0 <= nanos && nanos < kDaySeconds * kNanos, "a time of {} nanoseconds in a day", nanos);
  json += '"';
  append_day(json, day - kJulianOf1970);
  json += 'T';
  append_time(json, nanos / kNanos, nanos % kNanos, kNanos);
  json += '"';
}

void append_uuid(std::string& json, std::string_view bytes) {
  json += '"';
  for (size_t i = 0; i < bytes.size(); ++i)
    fmt::format_to(std::back_inserter(json), "{}{:02x}", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                   static_cast<uint8_t>(bytes[i]));
  json += '"';
}

void append_bytes(std::string& json, const ParquetColumn& column, std::string_view bytes) {
  using enum ParquetMeaning;
  if (column.meaning == text) return append_json_string(json, bytes);
  if (column.meaning == decimal && bytes.size() <= kMostDecimalBytes) return append_decimal(json, bytes, column.scale);
  if (column.meaning == uuid && bytes.size() == 16) return append_uuid(json, bytes);
  if (column.meaning == half && bytes.size() == 2) {
    f16_t number;
    std::memcpy(&number.bits, bytes.data(), sizeof(number.bits));
    return append_real(json, static_cast<float>(number));
  }
  if (column.type == ParquetType::byte_array && is_valid_utf8(bytes)) return append_json_string(json, bytes);
  append_base64(json, bytes);
}

void append_integer(std::string& json, const ParquetColumn& column, int64_t value) {
  using enum ParquetMeaning;
  if (column.meaning == timestamp) return append_timestamp(json, value, column.parts, column.is_utc);
  if (column.meaning == decimal) {
    const uint64_t magnitude = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
    return append_decimal(json, value < 0, std::to_string(magnitude), column.scale);
  }
  if (column.meaning == date || column.meaning == time) {
    json += '"';
    const int64_t second = floor_div(value, column.parts);
    require<IoError>(column.meaning == date || (0 <= second && second <= kDaySeconds), "a time of {} seconds", second);
    if (column.meaning == date)
      append_day(json, value);
    else
      append_time(json, second, value - second * column.parts, column.parts);
    json += '"';
    return;
  }
  const bool is_unsigned = column.meaning == unsigned_integer;
  const bool is_short = column.type == ParquetType::int32;
  if (is_unsigned && is_short) value = static_cast<uint32_t>(value);
  if (is_unsigned && !is_short)
    fmt::format_to(std::back_inserter(json), "{}", static_cast<uint64_t>(value));
  else
    fmt::format_to(std::back_inserter(json), "{}", value);
}

}  // namespace

void append_json_string(std::string& json, std::string_view text) {
  json += '"';
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin;
    while (end < text.size() && static_cast<uint8_t>(text[end]) >= 0x20 && text[end] != '"' && text[end] != '\\') ++end;
    json.append(text, begin, end - begin);
    if (end == text.size()) break;
    switch (const char c = text[end]) {
      case '"':
      case '\\':
        json += '\\';
        json += c;
        break;
      case '\n':
        json += "\\n";
        break;
      case '\t':
        json += "\\t";
        break;
      case '\r':
        json += "\\r";
        break;
      default:
        fmt::format_to(std::back_inserter(json), "\\u{:04x}", static_cast<unsigned>(c));
    }
    begin = end + 1;
  }
  json += '"';
}

void append_json_value(std::string& json, const ParquetColumn& column, const ParquetValue& value) {
  switch (column.type) {
    case ParquetType::boolean:
      json += value.integer != 0 ? "true" : "false";
      break;
    case ParquetType::int32:
    case ParquetType::int64:
      append_integer(json, column, value.integer);
      break;
    case ParquetType::int96:
      append_int96(json, value.bytes);
      break;
    case ParquetType::float32:
      append_real(json, static_cast<float>(value.real));
      break;
    case ParquetType::float64:
      append_real(json, value.real);
      break;
    case ParquetType::byte_array:
    case ParquetType::fixed_bytes:
      append_bytes(json, column, value.bytes);
      break;
  }
}

void append_json_key(std::string& json, const ParquetColumn& column, const ParquetValue& value) {
  const size_t begin = json.size();
  append_json_value(json, column, value);
  if (json[begin] == '"') return;
  json.insert(begin, 1, '"');
  json += '"';
}

}  // namespace nought
