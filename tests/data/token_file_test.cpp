#include "nought/data/token_file.h"

#include <cstring>

#include "support/size.h"
#include "support/token_stores.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"
#include "nought/tensor/random.h"

namespace nought::token_file_test {
namespace {

using test::Ids;
using test::message_of;
using test::starts_of;
using test::TempFolder;
using test::tokens_of;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(TokenFile, gives_back_tokens_documents_and_mask) {
  TempFolder folder;
  for (const int64_t vocab_size : {300, 65536, 65537, 200019}) {
    const auto last = static_cast<int32_t>(vocab_size - 1);
    TokenFileWriter writer(vocab_size, 7);
    writer.add(Ids{1, 2, last});
    writer.add({});
    writer.add(Ids{3, 4, 5, 6, 7, 8}, std::vector<uint8_t>{0, 1, 1, 0, 1, 0});
    writer.add(Ids{9});
    writer.write(folder / "a.tokens");
    const TokenFile file(folder / "a.tokens");
    EXPECT_THAT(tokens_of(file), ElementsAre(1, 2, last, 3, 4, 5, 6, 7, 8, 9));
    EXPECT_EQ(file.num_documents(), 3);
    EXPECT_THAT(starts_of(file, {0, 10}), ElementsAre(0, 3, 9));
    EXPECT_THAT(starts_of(file, {1, 9}), ElementsAre(3));
    std::vector<uint8_t> mask(10);
    file.read_mask(0, mask);
    EXPECT_THAT(mask, ElementsAre(1, 1, 1, 0, 1, 1, 0, 1, 0, 1));
    EXPECT_EQ(std::filesystem::file_size(folder / "a.tokens"), 64u + (vocab_size <= 65536 ? 24u : 40u) + 24u + 8u);
  }
}

TEST(TokenFile, without_masked_tokens_needs_no_mask) {
  TempFolder folder;
  TokenFileWriter writer(10, 7);
  writer.add(Ids{1, 2}, std::vector<uint8_t>{1, 1});
  writer.write(folder / "a.tokens");
  EXPECT_FALSE(TokenFile(folder / "a.tokens").has_mask());
  EXPECT_THAT(message_of<Error>([&] {
                writer.add(Ids{10});
                writer.write(folder / "b.tokens");
              }),
              HasSubstr("the token 10 is not in [0, 10)"));
}

TEST(TokenFile, a_newer_version_is_refused_before_the_rest_of_its_header_is_read) {
  const TempFolder folder;
  TokenFileHeader header;
  EXPECT_EQ(header.version, 1u);
  header.version = 2;
  header.token_bytes = 3;  // which version 1 does not know
  const auto file = folder.write("a.tokens", {reinterpret_cast<const char*>(&header), sizeof header});
  EXPECT_EQ(message_of<IoError>([&] { TokenFile{file}; }),
            fmt::format("{}: its format is nought-token-file-2, this program reads up to nought-token-file-1: use the "
                        "version of nought that wrote it, or a newer one",
                        file.string()));
}

NOUGHT_SIZE(medium);
TEST(TokenFile, damage_is_an_error_and_never_a_crash) {
  TempFolder folder;
  TokenFileWriter writer(300, 7);
  writer.add(Ids{1, 2, 299});
  writer.add(Ids{3, 4}, std::vector<uint8_t>{0, 1});
  writer.write(folder / "a.tokens");
  const std::string whole = test::read_bytes(folder / "a.tokens");
  int refused = 0;
  for (uint64_t key = 0; key < 3000; ++key) {
    std::string bytes = whole;
    if (key % 3 == 0) {
      bytes.resize(philox(key, 1)[0] % whole.size());
    } else {
      bytes[philox(key, 2)[0] % bytes.size()] ^= static_cast<char>(1 + philox(key, 3)[0] % 255);
    }
    const auto path = folder.write("b.tokens", bytes);
    try {
      const TokenFile file(path);
      tokens_of(file);
      starts_of(file, {0, file.size()});
      std::vector<uint8_t> mask(static_cast<size_t>(file.size()));
      file.read_mask(0, mask);
    } catch (const IoError& error) {
      EXPECT_THAT(error.what(), HasSubstr("b.tokens"));
      ++refused;
    }
  }
  EXPECT_GT(refused, 1500);
  EXPECT_THAT(message_of<IoError>([&] { TokenFile(folder.write("c", "text")); }), HasSubstr("is no token file"));
  EXPECT_THAT(message_of<IoError>([&] { TokenFile(folder / "none"); }), HasSubstr("none: cannot open"));
}

}  // namespace
}  // namespace nought::token_file_test
