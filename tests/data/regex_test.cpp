#include "nought/text/regex.h"

#include <thread>

#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::regex_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> matches_of(const Regex& regex, const std::string& text) {
  std::vector<Regex::Match> matches;
  regex.find_all(text, matches);
  std::vector<std::string> parts;
  for (const auto& [begin, end] : matches) parts.push_back(text.substr(begin, end - begin));
  return parts;
}

TEST(Regex, finds_every_match_from_left_to_right) {
  EXPECT_THAT(matches_of(Regex(R"(\p{L}+|\p{N}{1,3})"), "ab\u00e9 12345 \u4e2d"),
              ElementsAre("ab\u00e9", "123", "45", "\u4e2d"));
  EXPECT_THAT(matches_of(Regex("x"), "abc"), IsEmpty());
  EXPECT_THAT(matches_of(Regex("x"), ""), IsEmpty());
}

TEST(Regex, empty_matches_are_passed_over_character_by_character) {
  EXPECT_THAT(matches_of(Regex("a*"), "baa\u4e2da"), ElementsAre("aa", "a"));
  EXPECT_THAT(matches_of(Regex("(?=b)"), "abab"), IsEmpty());
}

TEST(Regex, white_space_and_letters_are_unicodes) {
  EXPECT_THAT(matches_of(Regex(R"(\s+)"), "a\u3000\u00a0b\u2003c"), ElementsAre("\u3000\u00a0", "\u2003"));
  EXPECT_THAT(matches_of(Regex(R"((?i:'s))"), "it's IT'S"), ElementsAre("'s", "'S"));
}

TEST(Regex, a_pattern_that_is_none_is_named_with_its_fault) {
  const std::string message = test::message_of<ConfigError>([] { Regex("a(b"); });
  EXPECT_THAT(message, HasSubstr("a(b"));
}

TEST(Regex, threads_may_share_one) {
  const Regex regex(R"(\w+)");
  std::vector<std::thread> threads;
  std::vector<size_t> counts(4, 0);
  for (size_t i = 0; i < counts.size(); ++i)
    threads.emplace_back([&, i] {
      for (int k = 0; k < 50; ++k) counts[i] += matches_of(regex, "one two three").size();
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(counts, ElementsAre(150u, 150u, 150u, 150u));
}

}  // namespace
}  // namespace nought::regex_test
