#include "nought/text/vocabulary.h"

#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::vocabulary_test {
namespace {

using test::message_of;
using testing::HasSubstr;

TEST(Vocabulary, gives_ids_and_tokens_with_gaps_between) {
  Vocabulary vocabulary;
  vocabulary.add("b", 5);
  vocabulary.add("a", 0);
  EXPECT_EQ(vocabulary.size(), 6);
  EXPECT_EQ(vocabulary.find("b"), 5);
  EXPECT_EQ(*vocabulary.token(0), "a");
  EXPECT_EQ(vocabulary.find("c"), std::nullopt);
  for (const int64_t id : {3, 6, -1}) EXPECT_EQ(vocabulary.token(id), nullptr) << id;
}

TEST(Vocabulary, an_id_has_one_token_and_a_token_may_have_two_ids) {
  Vocabulary vocabulary;
  vocabulary.add("a", 1);
  EXPECT_NO_THROW(vocabulary.add("a", 1));
  EXPECT_THAT(message_of<ConfigError>([&] { vocabulary.add("b", 1); }), HasSubstr("1 is given twice"));
  vocabulary.add("a", 2);
  EXPECT_EQ(vocabulary.find("a"), 1) << "the first of them";
  EXPECT_EQ(*vocabulary.token(2), "a");
}

TEST(Vocabulary, an_absurd_id_is_an_error_and_no_allocation) {
  Vocabulary vocabulary;
  for (const int64_t id : {int64_t{-1}, int64_t{1} << 40}) EXPECT_THROW(vocabulary.add("a", id), ConfigError) << id;
  EXPECT_EQ(vocabulary.size(), 0);
}

TEST(Vocabulary, bytes_have_tokens_and_characters_of_their_own) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string one(1, static_cast<char>(byte));
    EXPECT_EQ(byte_of_token(byte_token(static_cast<uint8_t>(byte))), byte);
    EXPECT_EQ(characters_to_bytes(bytes_to_characters(one)), one);
  }
  EXPECT_EQ(byte_token(10), "<0x0A>");
  EXPECT_EQ(bytes_to_characters(" a\n"), "\u0120a\u010a");  // as GPT-2's files spell them
  for (const char* none : {"<0x0a>", "<0x1>", "0x0A", "<0x0G>", ""}) EXPECT_EQ(byte_of_token(none), std::nullopt);
  EXPECT_EQ(characters_to_bytes("\u4e2d"), std::nullopt);
  EXPECT_EQ(characters_to_bytes("\xff"), std::nullopt);
}

}  // namespace
}  // namespace nought::vocabulary_test
