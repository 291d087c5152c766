// Tokenizers read from a vocab.json with a merges.txt beside it.
#include "support/golden_tokens.h"
#include <gtest/gtest.h>

namespace nought::vocab_and_merges_test {
namespace {

using test::expect_golden;
using test::golden_file;
using test::Json;
using test::TempFolder;

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

}  // namespace
}  // namespace nought::vocab_and_merges_test
