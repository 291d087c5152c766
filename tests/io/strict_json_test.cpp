#include "nought/io/strict_json.h"

#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::strict_json_test {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string refusal(std::string_view text) {
  return test::message_of<IoError>([&] { parse_strictly("a.bin", "the header", text, 3); });
}

TEST(StrictJson, reads_what_any_reader_reads) {
  EXPECT_EQ(parse_strictly("a.bin", "the header", R"({"a": [1, {"b": "c"}], "d": null})", 3).at("a")[1].at("b"), "c");
}

TEST(StrictJson, a_key_twice_in_one_object_is_refused) {
  EXPECT_THAT(refusal(R"({"a": 1, "a": 2})"), HasSubstr("a.bin: the header holds \"a\" twice"));
  EXPECT_EQ(refusal(R"({"a": {"b": 1}, "c": {"b": 1}, "b": 2})"), "") << "of different objects they are others";
}

TEST(StrictJson, members_that_are_objects_are_given_away_in_their_order) {
  std::string given;
  const Json rest =
      parse_strictly("a.bin", "the header", R"({"b": {"x": 1}, "n": 2, "a": {"y": {"z": 3}}, "l": [4]})", 3,
                     [&](const std::string& name, const Json& value) { given += name + value.dump(); });
  EXPECT_EQ(given, R"(b{"x":1}a{"y":{"z":3}})");
  EXPECT_EQ(rest.dump(), R"({"l":[4],"n":2})");
}

TEST(StrictJson, depth_has_a_limit) {
  EXPECT_EQ(refusal("[[[1]]]"), "");
  EXPECT_THAT(refusal("[[[[1]]]]"), HasSubstr("nests deeper than 3 levels"));
  EXPECT_NE(refusal(std::string(100000, '[')), "");
}

TEST(StrictJson, brackets_tell_the_levels_of_a_text_that_nobody_has_parsed) {
  EXPECT_EQ(nesting_of("1"), 0);
  EXPECT_EQ(nesting_of(R"({"a": [1], "b": [[2], {}]})"), 3);
  EXPECT_EQ(nesting_of(R"(["[[[", "\"[[[", "\\"])"), 1) << "those in strings are no levels";
  EXPECT_EQ(nesting_of("]]]]["), 0);
  EXPECT_EQ(nesting_of(std::string(100'000, '[')), 100'000);
}

TEST(StrictJson, broken_text_is_one_line_that_names_the_file) {
  for (const std::string text : {"", "{", "{\"a\": \n 1,}", "nul", "{\"a\" 1}"}) {
    EXPECT_THAT(refusal(text), HasSubstr("a.bin: the header is not valid JSON")) << text;
    EXPECT_THAT(refusal(text), Not(HasSubstr("\n")));
  }
}

TEST(StrictJson, an_excerpt_is_short_and_printable) {
  EXPECT_EQ(excerpt("a\nb\x01\xff"), "a?b??");
  EXPECT_EQ(excerpt(std::string(200, 'x')), std::string(80, 'x') + "...");
}

}  // namespace
}  // namespace nought::strict_json_test
