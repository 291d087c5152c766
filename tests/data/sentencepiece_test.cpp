// A SentencePiece model is read through its library, and its control tokens are markers.
#include <bit>

#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"
#include "nought/text/tokenizer.h"

namespace nought::sentencepiece_test {
namespace {

using test::message_of;
using test::TempFolder;
using testing::ElementsAre;
using testing::HasSubstr;

enum PieceType { normal = 1, unknown = 2, control = 3, byte = 6 };  // of sentencepiece_model.proto

/// A field of bytes in protobuf's wire format; all are short here.
void append_field(std::string& message, char tag, const std::string& bytes) {
  message += tag;
  message += static_cast<char>(bytes.size());
  message += bytes;
}

/// A ModelProto of a Unigram model: pieces of (text, score, type).
std::string model_of(const std::vector<std::tuple<std::string, float, PieceType>>& pieces) {
  std::string model;
  for (const auto& [text, score, type] : pieces) {
    std::string piece;
    append_field(piece, '\x0a', text);
    piece += '\x15';
    const auto bits = std::bit_cast<uint32_t>(score);
    for (int i = 0; i < 4; ++i) piece += static_cast<char>(bits >> (8 * i));
    piece += '\x18';
    piece += static_cast<char>(type);
    append_field(model, '\x0a', piece);
  }
  return model;
}

std::string small_model() {
  return model_of({{"<unk>", 0, unknown},
                   {"<s>", 0, control},
                   {"</s>", 0, control},
                   {"\u2581a", -1, normal},
                   {"b", -2, normal},
                   {"\u2581", -3, normal},
                   {"a", -4, normal}});
}

TEST(SentencePiece, encodes_and_decodes_as_the_model_says) {
  const TempFolder folder;
  const auto tokenizer = make_tokenizer(folder.write("a.model", small_model()).string());
  EXPECT_EQ(tokenizer->vocab_size(), 7);
  EXPECT_THAT(tokenizer->encode("ab a"), ElementsAre(3, 4, 3));
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{3, 4, 3}), "ab a");
  EXPECT_THAT(tokenizer->prefix(), ElementsAre(1));
  EXPECT_EQ(tokenizer->separator(), 2);
  EXPECT_EQ(tokenizer->find("b"), 4);
  EXPECT_EQ(tokenizer->find("c"), std::nullopt);
}

TEST(SentencePiece, markers_are_text_unless_they_are_asked_for) {
  const TempFolder folder;
  const auto tokenizer = make_tokenizer(folder.write("a.model", small_model()).string());
  EXPECT_THAT(tokenizer->encode("b</s>", {.specials = true}), ElementsAre(5, 4, 2));
  const std::vector<int32_t> text = tokenizer->encode("b</s>");
  EXPECT_EQ(std::count(text.begin(), text.end(), 2), 0);
  EXPECT_EQ(tokenizer->text_bytes(2), 0) << "a marker stands for no text";
  EXPECT_EQ(tokenizer->text_bytes(4), 1);
}

TEST(SentencePiece, what_is_no_model_is_named) {
  const TempFolder folder;
  EXPECT_THAT(message_of<ConfigError>([&] { make_tokenizer(folder.write("bad.model", "no model").string()); }),
              HasSubstr("bad.model: is no SentencePiece model"));
  const auto tokenizer = make_tokenizer(folder.write("a.model", small_model()).string());
  EXPECT_THAT(message_of<ConfigError>([&] { tokenizer->decode(std::vector<int32_t>{7}); }), HasSubstr("no token 7"));
}

}  // namespace
}  // namespace nought::sentencepiece_test
