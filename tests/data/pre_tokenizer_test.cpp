#include "nought/text/pre_tokenizer.h"

#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace nought::pre_tokenizer_test {
namespace {

using test::message_of;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> pieces_of(const std::vector<std::unique_ptr<PreTokenizer>>& steps, const std::string& text,
                                   bool at_start = true) {
  TextPieces pieces;
  pieces.views = {text};
  for (const auto& step : steps) step->apply(pieces, at_start);
  return {pieces.views.begin(), pieces.views.end()};
}

std::vector<std::string> cut(const std::string& json, const std::string& text, bool at_start = true) {
  const nlohmann::json steps = nlohmann::json::parse(json);
  return pieces_of(read_pre_tokenizers(JsonView(steps, "tokenizer.json")).steps, text, at_start);
}

std::string split(const std::string& behavior, bool invert = false) {
  return R"({"type": "Split", "pattern": {"String": "-"}, "behavior": ")" + behavior + R"(", "invert": )" +
         (invert ? "true}" : "false}");
}

/// The examples of Hugging Face's documentation of SplitDelimiterBehavior.
TEST(PreTokenizer, a_split_gives_the_delimiter_to_whom_its_behavior_says) {
  const std::string text = "the-final--countdown";
  EXPECT_THAT(cut(split("Removed"), text), ElementsAre("the", "final", "countdown"));
  EXPECT_THAT(cut(split("Isolated"), text), ElementsAre("the", "-", "final", "-", "-", "countdown"));
  EXPECT_THAT(cut(split("MergedWithPrevious"), text), ElementsAre("the-", "final-", "-", "countdown"));
  EXPECT_THAT(cut(split("MergedWithNext"), text), ElementsAre("the", "-final", "-", "-countdown"));
  EXPECT_THAT(cut(split("Contiguous"), text), ElementsAre("the", "-", "final", "--", "countdown"));
  EXPECT_THAT(cut(split("Removed", /*invert=*/true), text), ElementsAre("-", "-", "-"));
}

TEST(PreTokenizer, the_patterns_cut_as_their_models_do) {
  const std::string text = "It's 12345  years\n";
  const auto with = [&](std::string_view pattern) {
    std::vector<std::unique_ptr<PreTokenizer>> steps;
    steps.push_back(make_split(pattern));
    return pieces_of(steps, text);
  };
  EXPECT_THAT(with(kGpt2Pattern), ElementsAre("It", "'s", " 12345", " ", " years", "\n"));
  EXPECT_THAT(with(kCl100kPattern), ElementsAre("It", "'s", " ", "123", "45", " ", " years", "\n"));
  EXPECT_THAT(with(kO200kPattern), ElementsAre("It's", " ", "123", "45", " ", " years", "\n"));
  EXPECT_THAT(with(kQwen2Pattern), ElementsAre("It", "'s", " ", "1", "2", "3", "4", "5", " ", " years", "\n"));
}

TEST(PreTokenizer, metaspace_marks_words_at_the_start_of_a_text_or_everywhere) {
  const auto metaspace = [](const char* scheme) {
    return std::string(R"({"type": "Metaspace", "replacement": "_", "split": true, "prepend_scheme": ")") + scheme +
           "\"}";
  };
  EXPECT_THAT(cut(metaspace("first"), "a b"), ElementsAre("_a", "_b"));
  EXPECT_THAT(cut(metaspace("first"), "a b", /*at_start=*/false), ElementsAre("a", "_b"));
  EXPECT_THAT(cut(metaspace("always"), "a b", /*at_start=*/false), ElementsAre("_a", "_b"));
  EXPECT_THAT(cut(metaspace("never"), "a b"), ElementsAre("a", "_b"));
}

TEST(PreTokenizer, byte_level_says_so_and_may_add_a_space) {
  const nlohmann::json json{{"type", "ByteLevel"}, {"add_prefix_space", true}};
  const PreTokenizers steps = read_pre_tokenizers(JsonView(json, "tokenizer.json"));
  EXPECT_TRUE(steps.byte_level);
  EXPECT_THAT(pieces_of(steps.steps, "a b"), ElementsAre(" a", " b"));
}

TEST(PreTokenizer, what_is_not_supported_is_named) {
  EXPECT_THAT(message_of<ConfigError>([] { cut(R"({"type": "UnicodeScripts"})", ""); }), HasSubstr("UnicodeScripts"));
  EXPECT_THAT(message_of<ConfigError>([] { cut(split("Sideways"), ""); }), HasSubstr("Sideways"));
  EXPECT_THAT(cut("null", "a b"), ElementsAre("a b"));
}

/// What the tokenizer of a corpus relies on: a cut between lines changes no piece.
TEST(PreTokenizer, a_cut_between_lines_changes_no_piece) {
  const std::string text = "One line,\nanother 12\n\nthird's  end.\nlast \nline\n4 more\nwords";
  for (const std::string_view pattern : {kGpt2Pattern, kCl100kPattern, kO200kPattern, kQwen2Pattern}) {
    std::vector<std::unique_ptr<PreTokenizer>> steps;
    steps.push_back(make_split(pattern));
    ASSERT_TRUE(steps[0]->cuts_between_lines());
    const std::vector<std::string> whole = pieces_of(steps, text);
    int cuts = 0;
    for (size_t at = cut_between_lines(text, 1); at != std::string::npos; at = cut_between_lines(text, at + 1)) {
      std::vector<std::string> parts = pieces_of(steps, text.substr(0, at));
      for (const std::string& piece : pieces_of(steps, text.substr(at))) parts.push_back(piece);
      EXPECT_EQ(parts, whole) << "cut at " << at;
      ++cuts;
    }
    EXPECT_GE(cuts, 2);
  }
  EXPECT_FALSE(make_split("x+")->cuts_between_lines()) << "nobody knows what another pattern does there";
}

}  // namespace
}  // namespace nought::pre_tokenizer_test
