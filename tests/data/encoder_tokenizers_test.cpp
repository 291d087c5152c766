// The tokenizers of the golden encoders read texts as Hugging Face's tokenizers library does: WordPiece behind BERT's
// normalizer, byte-level BPE, and Unigram behind a Precompiled map, each with its special tokens around a text.
#include <fstream>

#include "support/golden_root.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/text/tokenizer.h"

namespace nought::encoder_tokenizers_test {
namespace {

class EncoderTokenizer : public testing::TestWithParam<const char*> {
 protected:
  std::string folder() const { return test::golden_root() + "/encoders/" + GetParam(); }
  nlohmann::json texts() const {
    nlohmann::json json;
    std::ifstream(folder() + "/golden_texts.json") >> json;
    return json;
  }
};

TEST_P(EncoderTokenizer, gives_the_ids_and_the_texts_of_the_tokenizers_library) {
  const auto tokenizer = make_tokenizer(folder());
  for (const nlohmann::json& golden : texts()) {
    const std::string text = golden.at("text");
    SCOPED_TRACE(text);
    const std::vector<int32_t> own = tokenizer->encode(text, {.specials = true});
    std::vector<int32_t> ids(tokenizer->prefix().begin(), tokenizer->prefix().end());
    ids.insert(ids.end(), own.begin(), own.end());
    ids.insert(ids.end(), tokenizer->suffix().begin(), tokenizer->suffix().end());
    EXPECT_EQ(ids, golden.at("ids").get<std::vector<int32_t>>());
    EXPECT_EQ(tokenizer->decode(own), golden.at("decoded").get<std::string>());
  }
}

INSTANTIATE_TEST_SUITE_P(Folders, EncoderTokenizer,
                         testing::Values("bert", "roberta", "xlm-roberta", "modernbert", "qwen3"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace nought::encoder_tokenizers_test
