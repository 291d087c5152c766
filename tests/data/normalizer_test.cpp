#include "nought/text/normalizer.h"

#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace nought::normalizer_test {
namespace {

using test::message_of;
using testing::HasSubstr;

/// `text` after the steps of a tokenizer.json's "normalizer".
std::string normalized(const char* json, std::string text) {
  const nlohmann::json steps = nlohmann::json::parse(json);
  normalize(read_normalizers(JsonView(steps, "tokenizer.json")), text);
  return text;
}

TEST(Normalizer, unicode_forms_compose_and_decompose) {
  const std::string composed = "\u00e9", apart = "e\u0301", ligature = "\ufb01";
  EXPECT_EQ(normalized(R"({"type": "NFC"})", apart), composed);
  EXPECT_EQ(normalized(R"({"type": "NFD"})", composed), apart);
  EXPECT_EQ(normalized(R"({"type": "NFC"})", ligature), ligature);
  EXPECT_EQ(normalized(R"({"type": "NFKC"})", ligature + apart), "fi" + composed);
  EXPECT_EQ(normalized(R"({"type": "NFKD"})", ligature + composed), "fi" + apart);
}

TEST(Normalizer, lower_case_keeps_the_dot_of_the_turkish_i) {
  EXPECT_EQ(normalized(R"({"type": "Lowercase"})", "AB\u00c9\u0130\u4e2d"), "ab\u00e9i\u0307\u4e2d");
}

TEST(Normalizer, texts_are_prepended_replaced_and_stripped) {
  EXPECT_EQ(normalized(R"({"type": "Prepend", "prepend": "_"})", "a"), "_a");
  EXPECT_EQ(normalized(R"({"type": "Prepend", "prepend": "_"})", ""), "");
  EXPECT_EQ(normalized(R"({"type": "Replace", "pattern": {"String": " "}, "content": "_"})", "a b c"), "a_b_c");
  EXPECT_EQ(normalized(R"({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "-"})", "a   b c"), "a-b c");
  EXPECT_EQ(normalized(R"({"type": "Strip", "strip_left": true, "strip_right": false})", "  a "), "a ");
  EXPECT_EQ(normalized(R"({"type": "Strip", "strip_left": false, "strip_right": true})", " a\u3000"), " a");
}

TEST(Normalizer, a_sequence_runs_in_its_order_and_null_is_none) {
  EXPECT_EQ(normalized(R"({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": " "},
                           {"type": "Replace", "pattern": {"String": " "}, "content": "_"}, {"type": "Lowercase"}]})",
                       "A b"),
            "_a_b");
  EXPECT_EQ(normalized("null", "A"), "A");
}

TEST(Normalizer, a_chain_that_doubles_a_text_again_and_again_is_refused) {
  std::string steps;  // 40 of them would make 100 TiB of 100 bytes
  for (int i = 0; i < 40; ++i) steps += R"(, {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"})";
  const std::string chain = R"({"type": "Sequence", "normalizers": [{"type": "NFC"})" + steps + "]}";
  EXPECT_THAT(message_of<ConfigError>([&] { normalized(chain.c_str(), std::string(100, 'a')); }),
              HasSubstr("the normalizers of the tokenizer make"));
  EXPECT_EQ(normalized(chain.c_str(), "b"), "b") << "it is the text that grows";
}

TEST(Normalizer, what_is_not_supported_is_named) {
  EXPECT_THAT(message_of<ConfigError>([] { normalized(R"({"type": "Nmt"})", ""); }), HasSubstr("Nmt"));
  EXPECT_THAT(message_of<ConfigError>([] { normalized(R"({"type": "ByteLevel"})", ""); }),
              HasSubstr("supported are NFC"));
  EXPECT_THROW(normalized(R"({"type": "Replace", "pattern": {"Regex": "("}, "content": ""})", ""), ConfigError);
}

}  // namespace
}  // namespace nought::normalizer_test
