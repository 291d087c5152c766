#include "nought/text/tokenizer.h"

#include "support/documents.h"
#include "support/golden_tokens.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::tokenizer_test {
namespace {

using test::golden_file;
using test::message_of;
using test::TempFolder;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Tokenizer, bytes_go_there_and_back) {
  const auto tokenizer = make_tokenizer("bytes");
  const std::string text = "gr\xc3\xbc\xc3\x9f dich\n";
  const std::vector<int32_t> ids = tokenizer->encode(text);
  EXPECT_EQ(ids.size(), text.size());
  EXPECT_EQ(ids[2], 0xc3);
  EXPECT_EQ(tokenizer->decode(ids), text);
  EXPECT_THAT(message_of<ConfigError>([&] { tokenizer->decode(std::vector<int32_t>{300}); }), HasSubstr("300"));
}

TEST(Tokenizer, a_model_must_have_all_its_ids) {
  const auto tokenizer = make_tokenizer("bytes");
  tokenizer->check_fits(256);
  EXPECT_THAT(message_of<ConfigError>([&] { tokenizer->check_fits(255); }), HasSubstr("needs at least 256"));
  EXPECT_THAT(message_of<ConfigError>([] { make_tokenizer("byte"); }), HasSubstr("did you mean \"bytes\"?"));
}

TEST(Tokenizer, markers_are_text_unless_they_are_asked_for) {
  const auto tokenizer = make_tokenizer(golden_file("r50k_base.tiktoken"));
  EXPECT_THAT(tokenizer->encode("a<|endoftext|>", {.specials = true}), ElementsAre(64, 50256));
  EXPECT_GT(tokenizer->encode("a<|endoftext|>").size(), 2u);
  EXPECT_EQ(tokenizer->find("<|endoftext|>"), 50256);
  std::vector<int32_t> document;
  test::encode_document(*tokenizer, "a", document);
  EXPECT_THAT(document, ElementsAre(64, 50256));
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
}  // namespace nought::tokenizer_test
