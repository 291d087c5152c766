#include "nought/base/name_pattern.h"

#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::name_pattern_test {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(NamePattern, is_searched_for_in_any_part_of_a_name) {
  for (const char* pattern : {"q_proj", "^layers", "weight$", R"(layers\.[0-9]+\.)", "(?!.*norm).*q_proj", "Q|q", "."})
    EXPECT_TRUE(NamePattern(pattern).found_in("layers.11.self_attn.q_proj.weight")) << pattern;
  for (const char* pattern : {"^q_proj", "k_proj", R"(layers\.1\.)", "weight.$", "WEIGHT", "^(?!.*q_proj)"})
    EXPECT_FALSE(NamePattern(pattern).found_in("layers.11.self_attn.q_proj.weight")) << pattern;
}

TEST(NamePattern, what_is_no_regular_expression_says_why) {
  EXPECT_THAT(message_of<ConfigError>([] { NamePattern("layers.("); }),
              AllOf(HasSubstr("\"layers.(\" is not a regular expression: "), HasSubstr("parenthesis")));
  EXPECT_THAT(message_of<ConfigError>([] { NamePattern("*"); }), HasSubstr("is not a regular expression"));
}

TEST(NamePattern, a_search_that_would_take_forever_is_refused_by_its_pattern) {
  const NamePattern pattern("^(a|aa)+$");
  EXPECT_TRUE(pattern.found_in("aaa"));
  EXPECT_THAT(message_of<ConfigError>([&] { (void)pattern.found_in(std::string(60, 'a') + "c"); }),
              HasSubstr("\"^(a|aa)+$\" takes too long to look for in \"aaa"));
  EXPECT_TRUE(NamePattern("^(.|x)*$").found_in(std::string(500, 'x'))) << "as long as names may be";
  // Another one needs memory for each character: std::regex overflowed the stack.
  EXPECT_THROW((void)NamePattern("^(.|x)*$").found_in(std::string(1'000'000, 'x')), ConfigError);
}

TEST(NamePattern, patterns_that_are_too_long_or_too_large_are_refused) {
  EXPECT_THAT(message_of<ConfigError>([] { NamePattern(std::string(1001, 'a')); }), HasSubstr("at most 1000"));
  EXPECT_NE(message_of<ConfigError>([] { NamePattern("((((x{60000}){60000}){60000}){60000})"); }), "");
  EXPECT_THAT(message_of<ConfigError>([] { NamePattern("((((((abcdefgh){20}){20}){20}){20}){2})"); }),
              HasSubstr("abc"));
}

}  // namespace
}  // namespace nought::name_pattern_test
