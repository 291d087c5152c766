#include "nought/data/token_store.h"

#include "support/token_stores.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/data/token_file.h"

namespace nought::token_store_test {
namespace {

using test::Ids;
using test::starts_of;
using test::TempFolder;
using test::tokens_of;
using testing::ElementsAre;

TEST(JoinedTokens, reads_across_its_parts) {
  TempFolder folder;
  TokenFileWriter masked(100, 7);
  masked.add(Ids{1, 2});
  masked.add(Ids{3}, std::vector<uint8_t>{0});
  masked.write(folder / "a.tokens");
  const auto array = std::make_shared<TokenArray>(100);
  array->begin_document();
  array->append(Ids{4, 5});
  const JoinedTokens joined({array, std::make_shared<TokenFile>(folder / "a.tokens"), array});
  EXPECT_THAT(tokens_of(joined), ElementsAre(4, 5, 1, 2, 3, 4, 5));
  EXPECT_THAT(starts_of(joined, {0, 7}), ElementsAre(0, 2, 4, 5));
  EXPECT_THAT(starts_of(joined, {1, 5}), ElementsAre(2, 4));
  std::vector<uint8_t> mask(3);
  joined.read_mask(3, mask);
  EXPECT_THAT(mask, ElementsAre(1, 0, 1));
  EXPECT_EQ(joined.fingerprint({0, 7}), joined.fingerprint({0, 7}));
  EXPECT_NE(joined.fingerprint({0, 6}), joined.fingerprint({1, 7}));
}

}  // namespace
}  // namespace nought::token_store_test
