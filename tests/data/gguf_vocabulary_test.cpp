// The tokenizers of GGUF files give texts the ids that llama.cpp gives them.
#include "nought/text/gguf_vocabulary.h"

#include "support/golden_root.h"
#include "support/message_of.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/chat/chat_template.h"
#include "nought/io/gguf_writer.h"
#include "nought/text/tokenizer_export.h"

namespace nought::gguf_vocabulary_test {
namespace {

using test::message_of;
using test::TempFolder;
using testing::ElementsAre;
using testing::HasSubstr;

std::string golden(const std::string& name) { return test::golden_root() + "/quant/gguf/" + name; }

void expect_golden_ids(const Tokenizer& tokenizer, const nlohmann::json& texts) {
  EXPECT_GT(texts.size(), 5u);
  for (const auto& each : texts) {
    const auto text = each["text"].get<std::string>();
    const std::vector<int32_t> ids = tokenizer.encode(text);
    EXPECT_EQ(ids, each["ids"].get<std::vector<int32_t>>()) << text;
    EXPECT_EQ(tokenizer.decode(ids), text);
  }
}

TEST(GgufVocabulary, golden_texts_have_the_ids_of_llama_cpp) {
  const auto all = nlohmann::json::parse(test::read_bytes(golden("tokens.json")));
  for (const auto& [name, texts] : all.items()) {
    SCOPED_TRACE(name);
    const std::string path = golden(name + ".gguf");
    expect_golden_ids(*make_tokenizer(path), texts);
    EXPECT_TRUE(holds_tokenizer(path));
  }
  EXPECT_FALSE(holds_tokenizer(golden("qwen2_q4_0.gguf")));
}

TEST(GgufVocabulary, what_is_exported_gives_the_same_ids) {
  const auto all = nlohmann::json::parse(test::read_bytes(golden("tokens.json")));
  for (const auto& [name, texts] : all.items()) {
    SCOPED_TRACE(name);
    const TempFolder folder;
    export_tokenizer({.tokenizer = golden(name + ".gguf")}, folder.path());
    const auto exported = make_tokenizer(folder.path().string()), own = make_tokenizer(golden(name + ".gguf"));
    expect_golden_ids(*exported, texts);
    EXPECT_EQ(exported->separator(), own->separator());
    EXPECT_EQ(std::vector<int32_t>(exported->prefix().begin(), exported->prefix().end()),
              std::vector<int32_t>(own->prefix().begin(), own->prefix().end()));
  }
}

TEST(GgufVocabulary, markers_and_the_chat_template_are_those_of_the_file) {
  const std::string path = golden("qwen2_q8_0.gguf");
  const auto tokenizer = make_tokenizer(path);
  EXPECT_EQ(tokenizer->encode("<|im_end|>", {.specials = true}), std::vector<int32_t>{2});
  EXPECT_EQ(tokenizer->separator(), 2);
  EXPECT_TRUE(tokenizer->prefix().empty());
  const ChatSource source = chat_source_for("", path, *tokenizer);
  EXPECT_THAT(source.jinja, HasSubstr("<|im_start|>"));
  const auto llama = make_tokenizer(golden("llama_q8_0.gguf"));
  EXPECT_THAT(std::vector<int32_t>(llama->prefix().begin(), llama->prefix().end()), ElementsAre(1));
}

TEST(GgufVocabulary, what_is_not_read_is_refused_by_name) {
  const TempFolder folder;
  const auto refusal = [&](GgufMetadata metadata) {
    GgufWriter(folder / "x.gguf", metadata, {}).finish();
    return message_of<ConfigError>([&] { read_gguf_tokenizer(folder / "x.gguf"); });
  };
  const std::pair<std::string, GgufValue> model{"tokenizer.ggml.model", std::string("gpt2")},
      tokens{"tokenizer.ggml.tokens", std::vector<std::string>{"a", "b"}};
  EXPECT_THAT(refusal({model, tokens, {"tokenizer.ggml.pre", std::string("klingon")}}),
              HasSubstr("the rule \"klingon\" by which its tokenizer cuts text (tokenizer.ggml.pre) is not known"));
  EXPECT_THAT(refusal({{"tokenizer.ggml.model", std::string("t5")}}), HasSubstr("the tokenizer \"t5\" is not read"));
  EXPECT_THAT(refusal({{"tokenizer.ggml.model", std::string("no_vocab")}}), HasSubstr("has no tokenizer"));
  EXPECT_THAT(refusal({{"tokenizer.ggml.model", std::string("llama")}, tokens}), HasSubstr("2 tokens and 0 scores"));
  EXPECT_THAT(refusal({model, tokens}), HasSubstr("has no tokenizer.ggml.merges"));
}

}  // namespace
}  // namespace nought::gguf_vocabulary_test
