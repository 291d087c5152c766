// The ids of OpenAI's encodings.
#include "support/golden_tokens.h"
#include "support/size.h"
#include <gtest/gtest.h>

namespace nought::tiktoken_test {
namespace {

using test::expect_golden;
using test::golden_file;
using test::random_text;

NOUGHT_SIZE(medium);
TEST(Tiktoken, gives_the_ids_of_openai_for_every_golden_text) {
  for (const char* encoding : {"r50k_base", "cl100k_base", "o200k_base"})
    expect_golden(*make_tokenizer(golden_file(std::string(encoding) + ".tiktoken")), encoding);
}

NOUGHT_SIZE(medium);
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

}  // namespace
}  // namespace nought::tiktoken_test
