// Files of pyarrow, DuckDB, Polars and fastparquet (tests/golden/make_parquet.py), and what lies below them.
#include <cmath>
#include <fstream>
#include <random>
#include <sstream>

#include "support/golden.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/base/error.h"
#include "nought/io/byte_source.h"
#include "nought/io/parquet_column.h"
#include "nought/io/parquet_encodings.h"
#include "nought/io/parquet_json.h"
#include "nought/io/parquet_layout.h"
#include "nought/io/parquet_source.h"
#include "nought/io/thrift_compact.h"

namespace nought::parquet_test {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::read_bytes;
using test::TempFolder;
using testing::HasSubstr;

std::string golden(const std::string& name) { return test::golden_folder("parquet/" + name); }

std::string all_of(const fs::path& file, size_t block = size_t{1} << 16) {
  const auto source = open_bytes(file);
  std::string all, piece(block, '\0');
  while (const size_t count = source->read(std::span(piece))) all.append(piece, 0, count);
  EXPECT_EQ(source->file_bytes(), static_cast<int64_t>(fs::file_size(file)));
  return all;
}

std::vector<nlohmann::ordered_json> rows_of(const std::string& lines) {
  std::vector<nlohmann::ordered_json> rows;
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) rows.push_back(nlohmann::ordered_json::parse(line));
  return rows;
}

class Parquet : public testing::TestWithParam<std::string> {};

TEST_P(Parquet, files_of_other_programs_have_the_rows_that_those_read) {
  const std::string file = golden(GetParam() + ".parquet");
  const std::string lines = all_of(file);
  const auto rows = rows_of(lines), expected = rows_of(read_bytes(golden(GetParam() + ".jsonl")));
  ASSERT_EQ(rows.size(), expected.size());
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(rows[i], expected[i]) << "row " << i + 1;
  EXPECT_EQ(all_of(file, 3), lines) << "bytes that are asked for in small pieces";
}

INSTANTIATE_TEST_SUITE_P(Files, Parquet,
                         testing::Values("conversations_snappy", "conversations_none", "conversations_old_lists",
                                         "scalars_gzip", "scalars_zstd_v2", "nested_snappy", "nested_v2", "packed",
                                         "int96", "empty", "duckdb", "polars", "fastparquet"),
                         [](const auto& each) { return each.param; });

/// Reads a file that may be damaged: its bytes, or the message of the error.
std::string outcome(const fs::path& file) {
  try {
    return std::to_string(all_of(file).size());
  } catch (const IoError& error) {
    return error.what();
  }
}

TEST(ParquetFiles, a_file_that_is_cut_off_is_refused_by_its_name) {
  const TempFolder folder;
  const std::string whole = read_bytes(golden("scalars_gzip.parquet"));
  for (size_t size = 4; size < whole.size(); size += 97)
    EXPECT_THAT(outcome(folder.write("cut.parquet", whole.substr(0, size))),
                HasSubstr("cut.parquet: cannot read the Parquet file: it is cut off: its last bytes, at " +
                          std::to_string(size - 4)));
}

TEST(ParquetFiles, damage_is_told_or_harmless) {
  const TempFolder folder;
  std::minstd_rand random(7);
  int refused = 0;
  for (const char* name : {"nested_v2", "conversations_snappy", "packed", "fastparquet"}) {
    const std::string whole = read_bytes(golden(std::string(name) + ".parquet"));
    for (int i = 0; i < 100; ++i) {
      std::string damaged = whole;
      damaged[4 + random() % (whole.size() - 8)] ^= static_cast<char>(1 << random() % 8);
      const std::string told = outcome(folder.write("damaged.parquet", damaged));
      if (told.find("damaged.parquet: cannot read") == 0 || told.find('/') == 0) ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(ParquetFiles, what_is_not_read_is_named_with_the_place) {
  EXPECT_THAT(
      message_of<IoError>([] { all_of(golden("refused_brotli.parquet")); }),
      testing::AllOf(HasSubstr("refused_brotli.parquet: cannot read row 1 of the Parquet file: column id, the page "
                               "at byte 4: "),
                     HasSubstr("compressed by brotli, and read are snappy, gzip and zstd")));
  const TempFolder folder;
  EXPECT_THAT(message_of<IoError>([&] { all_of(folder.write("x", "PAR1" + std::string(100, 'x') + "PARE")); }),
              HasSubstr("it is encrypted"));
}

TEST(ParquetEncodings, bits_are_read_at_any_place_and_of_any_width) {
  std::minstd_rand random(3);
  std::string bytes(64, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  for (int width = 1; width <= 64; ++width)
    for (size_t at = 0; at + static_cast<size_t>(width) <= 8 * bytes.size(); at += 5) {
      uint64_t expected = 0;
      for (int i = 0; i < width; ++i) {
        const size_t bit = at + static_cast<size_t>(i);
        expected |= uint64_t{static_cast<uint8_t>(bytes[bit / 8]) >> bit % 8 & 1u} << i;
      }
      ASSERT_EQ(bits_at(bytes, at, width), expected) << at << " " << width;
    }
  EXPECT_EQ(bits_for(0), 0);
  EXPECT_EQ(bits_for(5), 3);
}

TEST(ParquetEncodings, runs_and_groups_of_bits_follow_each_other) {
  // The specification's example: the numbers 0 to 7 with 3 bits; in front of them four times a 5.
  EXPECT_EQ(decode_levels("\x08\x05\x03\x88\xC6\xFA", 7, 12),
            (std::vector<uint8_t>{5, 5, 5, 5, 0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(decode_indices(std::string("\x02\x06\x01", 3), 2, 3), (std::vector<uint32_t>{1, 1, 1}));
  EXPECT_EQ(decode_booleans(std::string("\x02\0\0\0\x04\x01", 6), 2), (std::vector<uint8_t>{1, 1}));
  EXPECT_THROW(decode_indices(std::string("\x02\x06\x03", 3), 2, 3), IoError) << "beyond the dictionary";
  EXPECT_THROW(decode_indices("\x28\x06\x03", 2, 3), IoError) << "numbers of 40 bits";
  EXPECT_THROW(decode_levels("\x08", 7, 4), IoError) << "no number";
  EXPECT_THROW(decode_levels(std::string("\0\x01", 2), 1, 4), IoError) << "a stretch of none";
  EXPECT_THROW(decode_levels("\x08\x05", 4, 4), IoError) << "above the most";
}

TEST(ParquetEncodings, differences_are_the_specifications_examples) {
  // 1, 2, 3, 4, 5: blocks of 128 in 4 parts, 5 numbers, 1; the least difference 1, of which none needs bits.
  std::string_view bytes("\x80\x01\x04\x05\x02\x02\0\0\0\0", 10);
  EXPECT_EQ(decode_deltas(bytes, 5), (std::vector<int64_t>{1, 2, 3, 4, 5}));
  EXPECT_TRUE(bytes.empty());
  bytes = "\x80\x01\x04\x05\x02";
  EXPECT_THROW(decode_deltas(bytes, 4), IoError) << "more than there is room for";
}

std::string json_of(const ParquetColumn& column, const ParquetValue& value) {
  std::string json;
  append_json_value(json, column, value);
  return json;
}

TEST(ParquetJson, numbers_keep_all_their_digits) {
  ParquetColumn decimal{.meaning = ParquetMeaning::decimal, .scale = 5};
  std::string bytes(16, '\xff');
  bytes[15] = '\xfe';
  EXPECT_EQ(json_of(decimal, {.bytes = bytes}), "-0.00002");
  bytes.assign(16, '\xff'), bytes[0] = '\x7f';
  EXPECT_EQ(json_of(decimal, {.bytes = bytes}), "1701411834604692317316873037158841.05727") << "2^127 - 1";
  bytes.assign(16, '\0'), bytes[0] = '\x80';
  EXPECT_EQ(json_of(decimal, {.bytes = bytes}), "-1701411834604692317316873037158841.05728");
  decimal.type = ParquetType::int32, decimal.scale = 0;
  EXPECT_EQ(json_of(decimal, {.integer = -7}), "-7");
}

TEST(ParquetJson, days_beyond_the_calendar_and_keys_that_are_no_strings_are_strings) {
  const ParquetColumn date{.type = ParquetType::int32, .meaning = ParquetMeaning::date};
  EXPECT_EQ(json_of(date, {.integer = -1}), "\"1969-12-31\"");
  EXPECT_EQ(json_of(date, {.integer = INT32_MIN}), "\"day -2147483648\"");
  std::string key;
  append_json_key(key, {.type = ParquetType::int64}, {.integer = 5});
  append_json_string(key, std::string("\0a\"\n\\", 5));
  EXPECT_EQ(key, "\"5\"\"\\u0000a\\\"\\n\\\\\"");
}

TEST(Thrift, damage_is_an_error_and_never_a_crash) {
  std::string_view bytes("\x15\x04\x29\x35\x02\x04\x06\0rest", 12);  // 1: 2, 3: [1, 2, 3]
  const ThriftValue value = read_thrift(bytes);
  EXPECT_EQ(bytes, "rest");
  EXPECT_EQ(value.integer_of(1), 2);
  EXPECT_EQ(value.integer_of(9, -1), -1);
  ASSERT_EQ(value.list_of(3).size(), 3u);
  EXPECT_EQ(value.list_of(3)[2].integer, 3);
  EXPECT_THROW(value.integer_of(3), IoError);
  EXPECT_THROW(value.list_of(1), IoError);
  const std::string deep(1000, '\x1c');
  for (const std::string& damaged :
       {std::string("\x15"), std::string("\x15\xff"), std::string("\x19\xf5\xff\xff\xff\x7f"), std::string("\x1d\0", 2),
        deep, std::string("\x18\x7f"), std::string(12, '\xff')}) {
    std::string_view left = damaged;
    EXPECT_THROW(read_thrift(left), IoError);
  }
}

}  // namespace
}  // namespace nought::parquet_test
