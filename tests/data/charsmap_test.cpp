// The maps of golden tokenizers are in encoder_tokenizers_test.cpp; here what is malformed.
#include "nought/text/charsmap.h"

#include <cstring>

#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::charsmap_test {
namespace {

using test::message_of;
using ::testing::HasSubstr;

std::string bytes_of(uint32_t size, const std::vector<uint32_t>& trie, const std::string& texts) {
  std::string bytes(sizeof size + trie.size() * sizeof(uint32_t), '\0');
  std::memcpy(bytes.data(), &size, sizeof size);
  std::memcpy(bytes.data() + sizeof size, trie.data(), trie.size() * sizeof(uint32_t));
  return bytes + texts;
}

/// A trie that knows "a" alone: the root's children begin at 1 ^ byte, and the leaf of one at its own offset.
std::vector<uint32_t> trie_of_a(uint32_t value) {
  std::vector<uint32_t> trie(256);
  trie[0] = 1u << 10;
  trie[1 ^ 'a'] = 'a' | 1u << 8 | (2u << 10);
  trie[(1 ^ 'a') ^ 2] = value;
  return trie;
}

TEST(Charsmap, a_known_beginning_has_a_replacement) {
  const Charsmap map(bytes_of(1024, trie_of_a(2), std::string("x\0yz\0", 5)));
  EXPECT_EQ(map.replacement("a"), "yz");
  EXPECT_EQ(map.replacement("ab"), "yz");
  EXPECT_EQ(map.replacement("b"), std::nullopt);
  EXPECT_EQ(map.replacement(""), std::nullopt);
}

TEST(Charsmap, what_points_beyond_its_texts_replaces_nothing) {
  const Charsmap map(bytes_of(1024, trie_of_a(77), std::string("x\0", 2)));
  EXPECT_EQ(map.replacement("a"), std::nullopt);
  const Charsmap short_map(bytes_of(4, {0xFFFFFFu << 10}, std::string("x\0", 2)));
  EXPECT_EQ(short_map.replacement("a"), std::nullopt);
}

TEST(Charsmap, what_is_no_map_is_refused) {
  EXPECT_THAT(message_of<ConfigError>([] { Charsmap("ab"); }), HasSubstr("2 bytes"));
  EXPECT_THAT(message_of<ConfigError>([] { Charsmap(bytes_of(4096, {0}, "")); }), HasSubstr("said to have 4096 bytes"));
  EXPECT_THAT(message_of<ConfigError>([] { Charsmap(bytes_of(4, {0}, "x")); }), HasSubstr("no end"));
  EXPECT_THAT(message_of<ConfigError>([] { Charsmap(bytes_of(4, {0}, std::string(65, 'x') + '\0')); }),
              HasSubstr("becomes 65 bytes"));
  EXPECT_THAT(message_of<ConfigError>([] { make_precompiled("!"); }), HasSubstr("not base64"));
}

}  // namespace
}  // namespace nought::charsmap_test
