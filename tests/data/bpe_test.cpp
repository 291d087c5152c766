// Byte-pair encoding against the definition: the pair of the lowest rank is merged, the leftmost of equals, until none
// is left.
#include <algorithm>

#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"
#include "nought/tensor/random.h"
#include "nought/text/piece_model.h"

namespace nought::bpe_test {
namespace {

using testing::ElementsAre;

using Ids = std::vector<int32_t>;

/// The letters a, b and c, and tokens made of them.
Vocabulary letters(const std::vector<std::string>& tokens) {
  Vocabulary vocabulary;
  for (const char* letter : {"a", "b", "c"}) vocabulary.add(letter, vocabulary.size());
  for (const std::string& token : tokens) vocabulary.add(token, vocabulary.size());
  return vocabulary;
}

Ids merged_by_definition(const Vocabulary& vocabulary, const std::vector<Merge>& merges, const std::string& text) {
  Ids ids;
  for (const char c : text) ids.push_back(*vocabulary.find(std::string(1, c)));
  while (true) {
    const Merge* best = nullptr;
    size_t place = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i)
      for (const Merge& merge : merges)
        if (merge.left == ids[i] && merge.right == ids[i + 1] && (best == nullptr || merge.rank < best->rank))
          best = &merge, place = i;
    if (best == nullptr) return ids;
    ids[place] = best->merged;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  }
}

Ids encoded(const PieceModel& model, std::string_view piece) {
  Ids ids;
  model.encode(std::span(&piece, 1), ids);
  return ids;
}

TEST(Bpe, merges_by_rank_short_and_long_and_again) {
  const Vocabulary vocabulary = letters({"ab", "bc", "aa", "aab", "abc", "cab", "aabc", "bcaa"});
  const std::vector<Merge> merges = merges_by_rank(vocabulary);
  const auto model = make_bpe(vocabulary, merges, {});
  for (uint64_t key = 0; key < 200; ++key) {
    std::string text;
    const size_t length = 1 + key % 90;  // beyond 48 it is another algorithm, up to 15 there is a cache
    for (size_t i = 0; i < length; ++i) text += static_cast<char>('a' + philox(key, i)[0] % 3);
    const Ids expected = merged_by_definition(vocabulary, merges, text);
    EXPECT_EQ(encoded(*model, text), expected) << text;
    EXPECT_EQ(encoded(*model, text), expected) << text << ", the second time";
  }
  EXPECT_THAT(encoded(*model, ""), ElementsAre());
}

TEST(Bpe, a_piece_that_is_a_token_may_be_that_token_whatever_the_merges_say) {
  const Vocabulary vocabulary = letters({"ab", "abc"});
  const std::vector<Merge> one{{0, 1, 3, 0}};  // nothing makes "abc"
  EXPECT_THAT(encoded(*make_bpe(vocabulary, one, {}), "abc"), ElementsAre(3, 2));
  EXPECT_THAT(encoded(*make_bpe(vocabulary, one, {.ignore_merges = true}), "abc"), ElementsAre(4));
}

TEST(Bpe, characters_without_a_token_become_bytes_or_unknown) {
  Vocabulary vocabulary = letters({"<unk>"});
  const auto fused = make_bpe(vocabulary, {}, {.byte_level = false, .fuse_unknown = true, .unknown = 3});
  EXPECT_THAT(encoded(*fused, "a\u4e2d\u6587b"), ElementsAre(0, 3, 1));
  const auto apart = make_bpe(vocabulary, {}, {.byte_level = false, .unknown = 3});
  EXPECT_THAT(encoded(*apart, "a\u4e2d\u6587b"), ElementsAre(0, 3, 3, 1));
  for (int byte = 0; byte < 256; ++byte) vocabulary.add(byte_token(static_cast<uint8_t>(byte)), 4 + byte);
  const auto bytes = make_bpe(vocabulary, {}, {.byte_level = false, .byte_fallback = true, .unknown = 3});
  EXPECT_THAT(encoded(*bytes, "a\u00e9"), ElementsAre(0, 4 + 0xc3, 4 + 0xa9));
}

TEST(Bpe, what_cannot_be_expressed_is_an_error) {
  const Vocabulary vocabulary = letters({});
  const auto model = make_bpe(vocabulary, {}, {});
  EXPECT_THAT(test::message_of<ConfigError>([&] { encoded(*model, "ad"); }), testing::HasSubstr("0x64"));
}

}  // namespace
}  // namespace nought::bpe_test
