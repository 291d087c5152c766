#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/text/piece_model.h"

namespace nought::wordpiece_test {
namespace {

using ::testing::ElementsAre;

std::vector<int32_t> encoded(const WordPieceOptions& options, std::vector<std::string_view> words) {
  Vocabulary vocabulary;
  for (const char* token : {"[UNK]", "un", "##aff", "##able", "##a", "able", "\u00e9", "##\u00e9"})
    vocabulary.add(token, vocabulary.size());
  std::vector<int32_t> ids;
  make_wordpiece(vocabulary, options)->encode(words, ids);
  return ids;
}

TEST(WordPiece, the_longest_token_that_fits_comes_first) {
  EXPECT_THAT(encoded({}, {"unaffable", "able", "una"}), ElementsAre(1, 2, 3, 5, 1, 4));
  EXPECT_THAT(encoded({}, {"\u00e9\u00e9"}), ElementsAre(6, 7));
}

TEST(WordPiece, a_word_with_a_part_that_is_no_token_is_unknown_as_a_whole) {
  EXPECT_THAT(encoded({}, {"unaffx", "x", "un"}), ElementsAre(0, 0, 1));
  EXPECT_THAT(encoded({.longest_word = 8}, {"unaffable", "un"}), ElementsAre(0, 1));
}

}  // namespace
}  // namespace nought::wordpiece_test
