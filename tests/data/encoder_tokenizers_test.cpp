// The tokenizers of the golden encoders read texts as Hugging Face's tokenizers library does: WordPiece behind BERT's
// normalizer, byte-level BPE, and Unigram behind a Precompiled map, each with its special tokens around a text.
#include <fstream>
#include <map>

#include "support/golden_root.h"
#include "support/message_of.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/base/error.h"
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

void expect_golden(const Tokenizer& tokenizer, const nlohmann::json& texts) {
  for (const nlohmann::json& golden : texts) {
    const std::string text = golden.at("text");
    SCOPED_TRACE(text);
    const std::vector<int32_t> own = tokenizer.encode(text, {.specials = true});
    std::vector<int32_t> ids(tokenizer.prefix().begin(), tokenizer.prefix().end());
    ids.insert(ids.end(), own.begin(), own.end());
    ids.insert(ids.end(), tokenizer.suffix().begin(), tokenizer.suffix().end());
    EXPECT_EQ(ids, golden.at("ids").get<std::vector<int32_t>>());
    EXPECT_EQ(tokenizer.decode(own), golden.at("decoded").get<std::string>());
  }
}

TEST_P(EncoderTokenizer, gives_the_ids_and_the_texts_of_the_tokenizers_library) {
  expect_golden(*make_tokenizer(folder()), texts());
}

INSTANTIATE_TEST_SUITE_P(Folders, EncoderTokenizer,
                         testing::Values("bert", "roberta", "xlm-roberta", "modernbert", "qwen3"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

/// A folder with nothing but the lines of BERT's vocabulary, and what tokenizer_config.json says.
class VocabTxt : public testing::Test {
 protected:
  VocabTxt() {
    std::ifstream file(test::golden_root() + "/encoders/bert/tokenizer.json");
    std::map<int, std::string> tokens;
    const nlohmann::json json = nlohmann::json::parse(file);
    for (const auto& [token, id] : json.at("model").at("vocab").items()) tokens[id] = token;
    for (const auto& [id, token] : tokens) lines += token + "\n";
  }
  std::string refusal(const std::string& text) {
    folder.write("vocab.txt", text);
    return test::message_of<Error>([&] { make_tokenizer(folder.path().string()); });
  }
  test::TempFolder folder;
  std::string lines;
};

TEST_F(VocabTxt, is_the_tokenizer_json_that_it_amounts_to) {
  folder.write("vocab.txt", lines);
  ASSERT_TRUE(holds_tokenizer(folder.path()));
  std::ifstream file(test::golden_root() + "/encoders/bert/golden_texts.json");
  expect_golden(*make_tokenizer(folder.path().string()), nlohmann::json::parse(file));
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "BertTokenizer", "do_lower_case": false})");
  const auto cased = make_tokenizer((folder / "vocab.txt").string());
  EXPECT_NE(cased->encode("The", {}), make_tokenizer(test::golden_root() + "/encoders/bert")->encode("The", {}));
}

TEST_F(VocabTxt, another_vocabulary_is_refused) {
  EXPECT_THAT(refusal("a\nb\n"), testing::HasSubstr("has no line \"[UNK]\", which BERT's tokenizer needs"));
  EXPECT_THAT(refusal(lines + "[PAD]\n"), testing::HasSubstr("\"[PAD]\" is there twice"));
  EXPECT_THAT(refusal(lines + "\xff\n"), testing::HasSubstr("vocab.txt: is no text in UTF-8"));
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "MPNetTokenizer"})");
  EXPECT_THAT(refusal(lines), testing::HasSubstr("vocab.txt of a MPNetTokenizer is not supported"));
}

}  // namespace
}  // namespace nought::encoder_tokenizers_test
