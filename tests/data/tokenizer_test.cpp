#include "nought/data/tokenizer.h"

#include "support/golden_tokens.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"
#include "nought/data/unicode.h"
#include "nought/tensor/random.h"

namespace nought {
namespace {

using test::golden_file;
using test::golden_texts;
using test::GoldenText;
using test::Json;
using test::message_of;
using test::TempFolder;
using testing::ElementsAre;
using testing::HasSubstr;

void expect_golden(const Tokenizer& tokenizer, const std::string& encoding) {
  ASSERT_EQ(golden_texts().at(encoding).size(), 85u);
  for (const GoldenText& golden : golden_texts().at(encoding)) {
    const std::vector<int32_t> ids = tokenizer.encode(golden.text, {.specials = golden.specials});
    EXPECT_EQ(ids, golden.ids) << encoding << ": " << golden.text;
    EXPECT_EQ(tokenizer.decode(ids), golden.text);
  }
}

// Letters, marks, digits, spaces, line ends and emoji of several scripts, and parts of contractions.
std::string random_text(uint64_t key, size_t length) {
  static const std::vector<std::string> kParts{"a",
                                               "b",
                                               "Z",
                                               "the",
                                               " ",
                                               "  ",
                                               "\n",
                                               "\r\n",
                                               "\t",
                                               "'s",
                                               "'S",
                                               "'ll",
                                               "'",
                                               "1",
                                               "42",
                                               ".",
                                               "/",
                                               "-",
                                               "\u00e9",
                                               "\u0301",
                                               "\u0130",
                                               "\u017f",
                                               "\u01c5",
                                               "\u4e2d",
                                               "\u0e01",
                                               "\u00bd",
                                               "\u2167",
                                               "\u0661",
                                               "\u00a0",
                                               "\u3000",
                                               "\u2003",
                                               "\u0085",
                                               "\u180e",
                                               "\ufeff",
                                               "\U0001F600",
                                               "\u200d",
                                               "<|endoftext|>",
                                               "<|",
                                               "_",
                                               "\u0000b",
                                               "\U0001D7D8",
                                               "\U000E0001"};
  std::string text;
  for (size_t i = 0; i < length; ++i) text += kParts[philox(key, i)[0] % kParts.size()];
  return text;
}

TEST(Tiktoken, gives_the_ids_of_openai_for_every_golden_text) {
  for (const char* encoding : {"r50k_base", "cl100k_base", "o200k_base"})
    expect_golden(*make_tokenizer(golden_file(std::string(encoding) + ".tiktoken")), encoding);
}

TEST(TokenizerJson, gives_the_ids_of_openai_for_every_golden_text) {
  expect_golden(*make_tokenizer(golden_file("r50k_base.tokenizer.json")), "r50k_base");
}

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

TEST(VocabAndMerges, give_the_ids_of_openai_for_every_golden_text) {
  TempFolder folder;
  const Json model = Json::parse(std::ifstream(golden_file("r50k_base.tokenizer.json")))["model"];
  Json vocab = model["vocab"];
  vocab["<|endoftext|>"] = 50256;
  std::string merges = "#version: 0.2\n";
  for (const Json& merge : model["merges"]) merges += merge.get<std::string>() + "\n";
  folder.write("vocab.json", vocab.dump());
  folder.write("merges.txt", merges);
  const auto tokenizer = make_tokenizer(folder.path().string());
  expect_golden(*tokenizer, "r50k_base");
  EXPECT_EQ(tokenizer->separator(), 50256);
  EXPECT_EQ(tokenizer->vocab_size(), 50257);
}

TEST(Tiktoken, any_text_comes_back) {
  for (const char* encoding : {"r50k_base", "cl100k_base", "o200k_base"}) {
    const auto tokenizer = make_tokenizer(golden_file(std::string(encoding) + ".tiktoken"));
    for (uint64_t key = 0; key < 200; ++key) {
      const std::string text = random_text(key, 60);
      EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
      EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, {.specials = true})), text);
    }
    const std::string broken = "gr\xfc\xdf dich \xe4\xb8 \xf0\x9f\x98 ok\xff";
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(broken)), broken);
  }
}

TEST(Tiktoken, a_long_piece_merges_as_a_short_one_does) {
  // One piece beyond the length where merging changes its algorithm; its words are known by themselves.
  const auto tokenizer = make_tokenizer(golden_file("r50k_base.tiktoken"));
  const std::string dashes(1000, '-');
  const std::vector<int32_t> ids = tokenizer->encode(dashes);
  EXPECT_EQ(tokenizer->decode(ids), dashes);
  EXPECT_EQ(ids.size(), 1000u / 64 + 2);  // 64 dashes are one token; 40 are left, as 32 and 8
}

TEST(Tokenizer, markers_are_text_unless_they_are_asked_for) {
  const auto tokenizer = make_tokenizer(golden_file("r50k_base.tiktoken"));
  EXPECT_THAT(tokenizer->encode("a<|endoftext|>", {.specials = true}), ElementsAre(64, 50256));
  EXPECT_GT(tokenizer->encode("a<|endoftext|>").size(), 2u);
  EXPECT_EQ(tokenizer->find("<|endoftext|>"), 50256);
  std::vector<int32_t> document;
  tokenizer->encode_document("a", document);
  EXPECT_THAT(document, ElementsAre(64, 50256));
}

TEST(Tokenizer, streams_whole_characters) {
  for (const std::string& name : {golden_file("r50k_base.tiktoken"), std::string("bytes")}) {
    const auto tokenizer = make_tokenizer(name);
    const std::string text = "caf\u00e9 \U0001F600\u4e2d\u6587 end";
    StreamDecoder stream(*tokenizer);
    std::string all;
    for (const int32_t id : tokenizer->encode(text)) {
      const std::string part = stream.push(id);
      EXPECT_TRUE(is_valid_utf8(part)) << part;
      all += part;
    }
    EXPECT_EQ(all, text);
    EXPECT_EQ(stream.finish(), "");
  }
}

TEST(Tokenizer, a_stream_that_ends_within_a_character_gives_its_bytes) {
  for (const std::string& name : {golden_file("r50k_base.tiktoken"), std::string("bytes")}) {
    const auto tokenizer = make_tokenizer(name);
    const std::string text = "ab\u4e2d";
    StreamDecoder stream(*tokenizer);
    std::string all;
    for (const int32_t id : tokenizer->encode(text.substr(0, 4))) all += stream.push(id);
    EXPECT_EQ(all, "ab");
    EXPECT_EQ(all + stream.finish(), text.substr(0, 4));
    EXPECT_EQ(stream.finish(), "");
  }
}

TEST(Tokenizer, what_it_cannot_do_is_said_in_one_line) {
  const auto tokenizer = make_tokenizer(golden_file("r50k_base.tiktoken"));
  EXPECT_THAT(message_of<ConfigError>([&] { tokenizer->decode(std::vector<int32_t>{60000}); }),
              HasSubstr("has no token 60000; its ids are below 50257"));
  EXPECT_THAT(message_of<ConfigError>([&] { tokenizer->check_fits(50000); }), HasSubstr("needs at least 50257"));
  TempFolder folder;
  EXPECT_THAT(message_of<IoError>([&] { make_tokenizer(folder.path().string()); }), HasSubstr("no tokenizer.json"));
  EXPECT_THAT(message_of<ConfigError>([&] { make_tokenizer(folder.write("a.txt", "x").string()); }),
              HasSubstr("expected tokenizer.json"));
  EXPECT_THAT(message_of<ConfigError>([&] { make_tokenizer(folder.write("a.tiktoken", "YQ== 0\nYg== 1\n").string()); }),
              HasSubstr("has 2 tokens; known encodings are"));
  EXPECT_THAT(message_of<ConfigError>([&] { make_tokenizer(folder.write("a.tiktoken", "YQ== 0\n!! 1\n").string()); }),
              HasSubstr("a.tiktoken:2: \"!!\" is no token in base64"));
  EXPECT_THAT(message_of<IoError>([&] { make_tokenizer(folder.write("vocab.json", "{}").string()); }),
              HasSubstr("merges.txt is no file"));
}

}  // namespace
}  // namespace nought
