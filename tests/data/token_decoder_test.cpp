#include "nought/text/token_decoder.h"

#include "support/golden_tokens.h"
#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/text/unicode.h"

namespace nought::token_decoder_test {
namespace {

using test::golden_file;
using test::message_of;
using testing::HasSubstr;

TEST(StreamDecoder, streams_whole_characters) {
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

TEST(StreamDecoder, a_stream_that_ends_within_a_character_gives_its_bytes) {
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

TEST(TokenDecoder, a_chain_that_doubles_a_text_again_and_again_is_refused) {
  nlohmann::json steps = nlohmann::json::array();
  for (int i = 0; i < 40; ++i)
    steps.push_back({{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}});
  const nlohmann::json chain = {{"type", "Sequence"}, {"decoders", steps}};
  const TokenDecoder decoder(JsonView(chain, "tokenizer.json"), false);
  EXPECT_THAT(message_of<ConfigError>([&] {
                (void)decoder.decode({"aa", "b"});
              }),
              HasSubstr("the decoders of the tokenizer make"));
  EXPECT_EQ(decoder.decode({"b", "c"}), "bc");
}

}  // namespace
}  // namespace nought::token_decoder_test
