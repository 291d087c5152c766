// The golden ids of tiktoken, and Hugging Face files made from the vocabularies beside them.
#pragma once

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "support/golden_root.h"
#include "support/temp_folder.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/io/files.h"
#include "nought/tensor/random.h"
#include "nought/text/piece_model.h"
#include "nought/text/tokenizer.h"

namespace nought::test {

using Json = nlohmann::json;

struct GoldenText {
  std::string text;
  std::vector<int32_t> ids;
  bool specials = false;
};

inline std::string golden_file(const std::string& name) { return golden_root() + "/tokenizer/" + name; }

/// By encoding: "r50k_base", "cl100k_base", "o200k_base".
inline const std::map<std::string, std::vector<GoldenText>>& golden_texts() {
  static const auto texts = [] {
    std::map<std::string, std::vector<GoldenText>> result;
    for (const Json& entry : Json::parse(std::ifstream(golden_file("golden_tokens.json"))))
      result[entry["encoding"]].push_back(
          {entry["text"], entry["ids"].get<std::vector<int32_t>>(), entry.contains("allowed_special")});
    return result;
  }();
  return texts;
}

/// tokenizer.json as Hugging Face's TikTokenConverter writes it: every split of a token into tokens is a merge.
inline std::string tokenizer_json_of(const Tokenizer& tokenizer, int64_t ranks, const std::string& pattern) {
  Vocabulary vocabulary;
  Json vocab = Json::object(), merges = Json::array(), added = Json::array();
  for (int32_t id = 0; id < ranks; ++id) {
    const std::string bytes = tokenizer.decode(std::span(&id, 1));
    vocabulary.add(bytes, id);
    vocab[bytes_to_characters(bytes)] = id;
  }
  const auto spelt = [&](int32_t id) { return bytes_to_characters(*vocabulary.token(id)); };
  for (const Merge& merge : merges_by_rank(vocabulary)) merges.push_back({spelt(merge.left), spelt(merge.right)});
  added.push_back({{"id", tokenizer.separator()}, {"content", "<|endoftext|>"}, {"special", true}});
  const Json split{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  const Json byte_level{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  return Json{{"added_tokens", added},
              {"normalizer", nullptr},
              {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, byte_level}}}},
              {"decoder", {{"type", "ByteLevel"}}},
              {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}, {"ignore_merges", true}}}}
      .dump();
}

inline void expect_golden(const Tokenizer& tokenizer, const std::string& encoding) {
  ASSERT_EQ(golden_texts().at(encoding).size(), 85u);
  for (const GoldenText& golden : golden_texts().at(encoding)) {
    const std::vector<int32_t> ids = tokenizer.encode(golden.text, {.specials = golden.specials});
    EXPECT_EQ(ids, golden.ids) << encoding << ": " << golden.text;
    EXPECT_EQ(tokenizer.decode(ids), golden.text);
  }
}

/// Letters, marks, digits, spaces, line ends and emoji of several scripts, and parts of contractions.
inline std::string random_text(uint64_t key, size_t length) {
  static const std::vector<std::string> kParts{"a",
                                               "b",
                                               "Z",
                                               "the",
                                               " ",
                                               "  ",
                                               "\n",
                                               "\r\n",
                                               "\t",
                                               "'s",
                                               "'S",
                                               "'ll",
                                               "'",
                                               "1",
                                               "42",
                                               ".",
                                               "/",
                                               "-",
                                               "\u00e9",
                                               "\u0301",
                                               "\u0130",
                                               "\u017f",
                                               "\u01c5",
                                               "\u4e2d",
                                               "\u0e01",
                                               "\u00bd",
                                               "\u2167",
                                               "\u0661",
                                               "\u00a0",
                                               "\u3000",
                                               "\u2003",
                                               "\u0085",
                                               "\u180e",
                                               "\ufeff",
                                               "\U0001F600",
                                               "\u200d",
                                               "<|endoftext|>",
                                               "<|",
                                               "_",
                                               "\u0000b",
                                               "\U0001D7D8",
                                               "\U000E0001"};
  std::string text;
  for (size_t i = 0; i < length; ++i) text += kParts[philox(key, i)[0] % kParts.size()];
  return text;
}

}  // namespace nought::test
