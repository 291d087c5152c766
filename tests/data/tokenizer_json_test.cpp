// Tokenizers read from Hugging Face's tokenizer.json.
#include "support/golden_tokens.h"
#include "support/size.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/base/error.h"

namespace nought::tokenizer_json_test {
namespace {

using test::expect_golden;
using test::golden_file;
using test::golden_texts;
using test::GoldenText;
using test::random_text;
using test::TempFolder;

TEST(TokenizerJson, gives_the_ids_of_openai_for_every_golden_text) {
  expect_golden(*make_tokenizer(golden_file("r50k_base.tokenizer.json")), "r50k_base");
}

NOUGHT_SIZE(medium);
TEST(TokenizerJson, merges_of_a_ranked_vocabulary_give_the_same_ids) {
  TempFolder folder;
  const auto ranked = make_tokenizer(golden_file("cl100k_base.tiktoken"));
  const std::string pattern =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  folder.write("tokenizer.json", test::tokenizer_json_of(*ranked, 100256, pattern));
  const auto converted = make_tokenizer(folder.path().string());
  for (const GoldenText& golden : golden_texts().at("cl100k_base")) {
    EXPECT_EQ(converted->encode(golden.text), ranked->encode(golden.text)) << golden.text;
  }
  for (uint64_t key = 0; key < 300; ++key) {
    const std::string text = random_text(key, 40);
    EXPECT_EQ(converted->encode(text), ranked->encode(text)) << text;
  }
}

TEST(TokenizerJson, steps_that_fill_memory_with_a_short_text_are_refused) {
  TempFolder folder;
  const nlohmann::json doubles = {
      {"type", "Metaspace"}, {"replacement", "  "}, {"split", false}, {"prepend_scheme", "never"}};
  const nlohmann::json json = {
      {"model", {{"type", "BPE"}, {"vocab", {{"a", 0}, {" ", 1}}}, {"merges", nlohmann::json::array()}}},
      {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", nlohmann::json::array_t(40, doubles)}}}};
  folder.write("tokenizer.json", json.dump());
  const auto tokenizer = make_tokenizer(folder.path().string());
  EXPECT_EQ(tokenizer->encode("aa").size(), 2u);
  EXPECT_THAT(test::message_of<ConfigError>([&] { (void)tokenizer->encode("a a"); }),
              testing::HasSubstr("the pre-tokenizers of the tokenizer make"));
}

}  // namespace
}  // namespace nought::tokenizer_json_test
