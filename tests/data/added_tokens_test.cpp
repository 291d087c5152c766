#include "nought/text/added_tokens.h"

#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::added_tokens_test {
namespace {

/// The text that next() finds from `from` on, and its id.
std::pair<std::string, int32_t> found(const AddedTokens& tokens, std::string_view text, size_t from, bool specials,
                                      bool normalized = false) {
  const auto match = tokens.next(text, from, specials, normalized);
  return match ? std::pair(std::string(text.substr(match->begin, match->end - match->begin)), match->id)
               : std::pair(std::string("nothing"), -1);
}

using Found = std::pair<std::string, int32_t>;

TEST(AddedTokens, the_first_in_the_text_and_the_longest_there_is_found) {
  AddedTokens tokens;
  tokens.add({.content = "<a>", .id = 1});
  tokens.add({.content = "<a><b>", .id = 2});
  tokens.add({.content = "x", .id = 3});
  EXPECT_EQ(found(tokens, "..<a>x", 0, false), Found("<a>", 1));
  EXPECT_EQ(found(tokens, "..<a><b>", 0, false), Found("<a><b>", 2));
  EXPECT_EQ(found(tokens, "<a>x", 1, false), Found("x", 3));
  EXPECT_EQ(found(tokens, "<a", 0, false), Found("nothing", -1));
  EXPECT_EQ(found(AddedTokens(), "<a>", 0, true), Found("nothing", -1));
}

TEST(AddedTokens, the_longest_is_found_among_all_that_begin_alike) {
  AddedTokens tokens;
  const std::vector<std::string> contents{"a", "ab", "abc", "abd", "ab_", "abcde", "b"};
  for (size_t i = 0; i < contents.size(); ++i)
    tokens.add({.content = contents[i], .id = static_cast<int32_t>(i), .special = contents[i] == "abcde"});
  EXPECT_EQ(found(tokens, "abcdef", 0, true), Found("abcde", 5));
  EXPECT_EQ(found(tokens, "abcdef", 0, false), Found("abc", 2));
  EXPECT_EQ(found(tokens, "abcd", 0, true), Found("abc", 2));
  EXPECT_EQ(found(tokens, "ab ", 0, true), Found("ab", 1));
  EXPECT_EQ(found(tokens, "abz", 0, true), Found("ab", 1));
  EXPECT_EQ(found(tokens, "a\xff", 0, true), Found("a", 0));
  EXPECT_EQ(found(tokens, "zzb", 0, true), Found("b", 6));
}

TEST(AddedTokens, markers_and_normalized_ones_are_found_where_they_are_wanted) {
  AddedTokens tokens;
  tokens.add({.content = "<s>", .id = 1, .special = true});
  tokens.add({.content = "n", .id = 2, .normalized = true});
  EXPECT_EQ(found(tokens, "<s>", 0, true), Found("<s>", 1));
  EXPECT_EQ(found(tokens, "<s>", 0, false), Found("nothing", -1));
  EXPECT_EQ(found(tokens, "<s>n", 0, true, /*normalized=*/true), Found("n", 2));
  EXPECT_EQ(tokens.first_of_any("<s>n", 0)->id, 1);
  EXPECT_EQ(tokens.first_of_any("<s>n", 1)->id, 2);
  EXPECT_FALSE(tokens.first_of_any("<s>.", 1));
}

TEST(AddedTokens, white_space_is_taken_on_the_sides_that_ask_for_it) {
  AddedTokens tokens;
  tokens.add({.content = "<l>", .id = 1, .strip_left = true});
  tokens.add({.content = "<r>", .id = 2, .strip_right = true});
  EXPECT_EQ(found(tokens, "a \n<l> b", 0, false), Found(" \n<l>", 1));
  EXPECT_EQ(found(tokens, "a <r>\t b", 0, false), Found("<r>\t ", 2));
  EXPECT_EQ(found(tokens, "a  <l>", 2, false), Found(" <l>", 1)) << "not what lies before the place it looks from";
}

TEST(AddedTokens, a_token_that_is_given_again_is_the_new_one_and_an_empty_one_is_refused) {
  AddedTokens tokens;
  tokens.add({.content = "<a>", .id = 1});
  tokens.add({.content = "<a>", .id = 7});
  EXPECT_EQ(tokens.find("<a>"), 7);
  EXPECT_EQ(tokens.all().size(), 1u);
  EXPECT_EQ(tokens.find("<b>"), std::nullopt);
  EXPECT_THROW(tokens.add({.content = "", .id = 3}), ConfigError);
}

}  // namespace
}  // namespace nought::added_tokens_test
