// An exported tokenizer gives the ids of the one that a run had, with the tokens that it added and its chat template.
#include "nought/text/tokenizer_export.h"

#include "support/byte_level.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/chat/chat_template.h"

namespace nought::tokenizer_export_test {
namespace {

using nlohmann::json;
using test::byte_level_tokenizer;
using test::message_of;
using test::TempFolder;
using testing::HasSubstr;

const std::vector<std::string> kMarkers{"<|im_start|>", "<|im_end|>"};
const std::string kText = "Ein <|im_end|> caf\u00e9, \u0100\n\n\t\u4e16 \xff\x80 end";

json json_in(const std::filesystem::path& file) { return json::parse(test::read_bytes(file)); }

TEST(TokenizerExport, bytes_come_back_as_bytes) {
  const TempFolder folder;
  export_tokenizer({"bytes"}, folder.path());
  const auto bytes = make_tokenizer("bytes"), again = make_tokenizer(folder.path().string());
  EXPECT_EQ(again->name(), "bytes");
  EXPECT_EQ(again->fingerprint(), bytes->fingerprint()) << "token files of either are those of the other";
  EXPECT_EQ(again->separator(), 0);
  EXPECT_EQ(json_in(folder / "tokenizer_config.json")["tokenizer_class"], "PreTrainedTokenizerFast");
}

TEST(TokenizerExport, the_file_of_bytes_says_by_itself_which_id_each_byte_has) {
  const TempFolder folder;
  export_tokenizer({"bytes"}, folder.path());
  folder.write("tokenizer.json", test::read_bytes(folder / "tokenizer.json") + " ");  // read as any other file
  const auto bytes = make_tokenizer("bytes"), general = make_tokenizer(folder.path().string());
  ASSERT_NE(general->name(), "bytes");
  std::string all = kText;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_EQ(general->encode(all), bytes->encode(all));
  EXPECT_EQ(general->decode(bytes->encode(all)), all);
  EXPECT_EQ(general->separator(), 0);
  EXPECT_EQ(general->vocab_size(), 256);
}

TEST(TokenizerExport, added_tokens_stand_behind_all_ids_and_text_does_not_spell_them) {
  const TempFolder folder;
  byte_level_tokenizer(folder, {"<s>", "</s>"});
  const std::string name = folder.path().string();
  const auto plain = make_tokenizer(name), more = make_tokenizer(name, kMarkers);
  EXPECT_EQ(more->vocab_size(), 260);
  EXPECT_EQ(more->find("<|im_start|>"), 258);
  EXPECT_EQ(more->find("<|im_end|>"), 259);
  EXPECT_EQ(more->separator(), plain->separator());
  EXPECT_EQ(more->encode(kText), plain->encode(kText));
  EXPECT_EQ(more->encode("a<|im_end|>", {.specials = true}), (std::vector<int32_t>{'a', 259}));
  EXPECT_NE(more->fingerprint(), plain->fingerprint());
  EXPECT_EQ(make_tokenizer("bytes", kMarkers)->encode(kText), make_tokenizer("bytes")->encode(kText));
  EXPECT_EQ(make_tokenizer("bytes", kMarkers)->separator(), 0);

  std::filesystem::create_directory(folder / "out");
  export_tokenizer({name, kMarkers}, folder / "out");
  const auto exported = make_tokenizer((folder / "out").string());
  EXPECT_EQ(exported->fingerprint(), more->fingerprint());
  EXPECT_EQ(exported->find("<|im_end|>"), 259);
  EXPECT_EQ(exported->separator(), more->separator()) << "tokenizer_config.json is there, too";
  EXPECT_EQ(make_tokenizer((folder / "out").string(), kMarkers)->fingerprint(), more->fingerprint())
      << "what is there already is not added again";
}

TEST(TokenizerExport, a_token_of_the_vocabulary_becomes_special_under_its_id) {
  const TempFolder folder;
  byte_level_tokenizer(folder, {"</s>"});
  json file = json_in(folder / "tokenizer.json");
  file["model"]["vocab"]["<|im_end|>"] = 300;
  folder.write("tokenizer.json", file.dump());
  const auto more = make_tokenizer(folder.path().string(), kMarkers);
  EXPECT_EQ(more->find("<|im_end|>"), 300);
  EXPECT_EQ(more->find("<|im_start|>"), 301);
  EXPECT_EQ(more->encode("<|im_end|>", {.specials = true}), std::vector<int32_t>{300});
}

TEST(TokenizerExport, tokens_are_added_to_a_tokenizer_json_alone) {
  const TempFolder folder;
  folder.write("vocab.json", "{}");
  const std::string name = folder.path().string();
  EXPECT_THAT(message_of<ConfigError>([&] { make_tokenizer(name, kMarkers); }),
              HasSubstr("data.add_special_tokens needs a tokenizer.json"));
  EXPECT_THAT(message_of<ConfigError>([&] { make_tokenizer("bytes", std::vector<std::string>{""}); }),
              HasSubstr("an empty token"));
  folder.write("tokenizer.json", "[]");
  EXPECT_THAT(message_of<ConfigError>([&] { make_tokenizer(name, kMarkers); }), HasSubstr("is no tokenizer.json"));
}

TEST(TokenizerExport, the_template_replaces_the_folders_and_brings_the_tokens_that_it_names) {
  const TempFolder folder;
  byte_level_tokenizer(folder, {"<|endoftext|>"});
  folder.write("tokenizer_config.json", R"({"model_max_length": 12, "chat_template": "old"})");
  folder.write("chat_template.jinja", "older");
  std::filesystem::create_directory(folder / "same");
  const auto program = [&] { return chat_source_for("", folder / "same", *make_tokenizer("bytes")).jinja; };
  export_tokenizer({folder.path().string()}, folder / "same");
  EXPECT_EQ(program(), "older");
  export_tokenizer({folder.path().string(), {}, "{{ eos_token }}", {{"eos_token", "<|endoftext|>"}}}, folder / "same");
  EXPECT_EQ(program(), "{{ eos_token }}");
  const json config = json_in(folder / "same/tokenizer_config.json");
  EXPECT_EQ(config["eos_token"], "<|endoftext|>");
  EXPECT_EQ(config["model_max_length"], 12);
}

TEST(TokenizerExport, nothing_is_written_without_a_tokenizer_in_a_folder) {
  const TempFolder folder;
  export_tokenizer({""}, folder / "out");
  export_tokenizer({(folder / "none").string()}, folder / "out");
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
}

}  // namespace
}  // namespace nought::tokenizer_export_test
