#include "nought/corpus/words.h"

#include "nought/corpus/characters.h"

namespace nought::words_test {

using testing::ElementsAre;

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  split_words(text, words);
  return words;
}

// Each is what spaCy 3.8's blank("en") gives.
TEST(Words, are_cut_as_spacy_cuts_english) {
  EXPECT_THAT(words_of("I don't (really) know, Mr. Smith..."),
              ElementsAre("I", "do", "n't", "(", "really", ")", "know", ",", "Mr.", "Smith", "..."));
  EXPECT_THAT(words_of("well-known: 16MB, $5 and 50% at 3.5x."),
              ElementsAre("well", "-", "known", ":", "16", "MB", ",", "$", "5", "and", "50", "%", "at", "3.5x", "."));
  EXPECT_THAT(words_of("See https://a.example.com/x-y, e.g. docs/files.md."),
              ElementsAre("See", "https://a.example.com/x-y", ",", "e.g.", "docs", "/", "files.md", "."));
  EXPECT_THAT(words_of("the U.S. and John's “new” café"),
              ElementsAre("the", "U.S.", "and", "John", "'s", "“", "new", "”", "café"));
  EXPECT_THAT(words_of(" \n "), ElementsAre());
}

TEST(Words, sentences_end_at_single_marks) {
  EXPECT_EQ(count_sentences("One. Two? Three!"), 3);
  EXPECT_EQ(count_sentences("One (two.) Three... four"), 2);
  EXPECT_EQ(count_sentences("no mark"), 1);
  EXPECT_EQ(count_sentences("  "), 0);
}

TEST(Characters, are_counted_and_classified_by_unicode) {
  EXPECT_EQ(count_characters("a\u00e9\u4e16"), 3u);
  EXPECT_EQ(count_of("......", "..."), 2u);
  EXPECT_TRUE(is_letter(U'\u00e9') && is_letter(U'z') && !is_letter(U'1'));
  EXPECT_TRUE(is_symbol(U'$') && is_symbol(U'\u2014') && !is_symbol(U'\u2192') && !is_symbol(U'1'));
  EXPECT_TRUE(ends_sentence(U'.') && ends_sentence(U'\u3002') && !ends_sentence(U'"'));
  EXPECT_EQ(strip("\u2003 a b\x1c\n"), "a b");
  EXPECT_THAT(split_lines("a\r\nb\u2028c\n\nd\n"), ElementsAre("a", "b", "c", "", "d"));
  EXPECT_EQ(lower_text("\u00c9 A"), "\u00e9 a");
  EXPECT_EQ(normal_form_c("e\u0301"), "\u00e9");
}

}  // namespace nought::words_test
