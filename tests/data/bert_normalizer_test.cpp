#include "nought/text/bert_normalizer.h"

#include <gtest/gtest.h>

namespace nought::bert_normalizer_test {
namespace {

std::string normalized(const BertRules& rules, std::string text) {
  make_bert_normalizer(rules)->apply(text);
  return text;
}

constexpr BertRules kNone{false, false, false, false};

TEST(BertNormalizer, control_characters_go_and_white_space_becomes_spaces) {
  BertRules rules = kNone;
  rules.clean_text = true;
  EXPECT_EQ(normalized(rules, "a\tb\nc\rd\u00a0e\u3000f"), "a b c d e f");
  EXPECT_EQ(normalized(rules, "a\u0001\u0085\ufffd\u200b\u00adb"), "ab");
  EXPECT_EQ(normalized(rules, std::string("a\0b", 3)), "ab");
}

TEST(BertNormalizer, each_ideograph_stands_alone) {
  BertRules rules = kNone;
  rules.parts_ideographs = true;
  EXPECT_EQ(normalized(rules, "a\u6771\u4eacb\u30bf\ud55c"), "a \u6771  \u4eac b\u30bf\ud55c");
}

TEST(BertNormalizer, accents_go_and_letters_become_small) {
  EXPECT_EQ(normalized({}, "\u00c9t\u00e9 \u00dcber \u0130"), "ete uber i");
  BertRules cased;
  cased.strip_accents = cased.lowercase = false;
  EXPECT_EQ(normalized(cased, "\u00c9t\u00e9"), "\u00c9t\u00e9");
  BertRules accented;
  accented.strip_accents = false;
  EXPECT_EQ(normalized(accented, "\u00c9t\u00e9"), "\u00e9t\u00e9");
}

}  // namespace
}  // namespace nought::bert_normalizer_test
