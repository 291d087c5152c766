#include "nought/data/token_decoder.h"

#include "support/golden_tokens.h"
#include <gtest/gtest.h>

#include "nought/data/unicode.h"

namespace nought {
namespace {

using test::golden_file;

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

}  // namespace
}  // namespace nought
