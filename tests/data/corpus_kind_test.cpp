#include "nought/data/corpus_kind.h"

#include "support/message_of.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/chat/record_json.h"
#include "nought/data/corpus.h"
#include "nought/data/dataset.h"

namespace nought {
namespace corpus_kind_test {
namespace {

using test::message_of;
using test::TempFolder;
using testing::ElementsAre;
using testing::HasSubstr;

const std::string kFirst =
    R"({"messages": [{"role": "user", "content": "Hi, [you]"}, {"role": "assistant", "content": "Yo \"}"}]})";
const std::string kSecond = R"({"prompt": "Who?", "completion": "Me."})";

CorpusKind kind_of(const std::string& name, const std::string& text, const CorpusOptions& options = {}) {
  return corpus_kind(name, text, options);
}

std::string refusal_of(const std::string& name, const std::string& text, const CorpusOptions& options = {}) {
  return message_of<ConfigError>([&] { kind_of(name, text, options); });
}

TEST(CorpusKind, conversations_are_found_by_content_whatever_the_file_is_called) {
  for (const char* name : {"a.jsonl", "a.json", "a.txt", "a"}) {
    EXPECT_EQ(kind_of(name, kFirst + "\n" + kSecond).format, CorpusFormat::chat) << name;
    EXPECT_EQ(kind_of(name, "[" + kFirst + ", " + kSecond + "]").layout, RecordLayout::list) << name;
    EXPECT_EQ(kind_of(name, "[\n  " + kFirst + ",\n  " + kSecond + "\n]\n").format, CorpusFormat::chat) << name;
    EXPECT_EQ(kind_of(name, "[\n {\"text\": \"x\"}]").format, CorpusFormat::jsonl) << name;
  }
  EXPECT_EQ(kind_of("a.txt", kFirst, {.format = CorpusFormat::text}).format, CorpusFormat::text);
  for (const char* text : {"[1] a footnote", "{braces} in prose", "[[1, 2], [3, 4]]", "\"x\"", "", "{\"a\": 1}"})
    EXPECT_EQ(kind_of("a.txt", text).format, CorpusFormat::text) << text;
}

TEST(CorpusKind, lists_and_values_give_the_tokens_of_the_same_records_on_lines) {
  const TempFolder folder;
  const auto tokenizer = make_tokenizer("bytes");
  CorpusOptions options{.chat = chat_source(ChatFormat::zephyr, *tokenizer)};
  const auto tokens_of = [&](const std::string& name, const std::string& text, size_t portion) {
    options.portion_bytes = portion;
    CorpusReader reader({folder.write(name, text)}, options, cut_point_of(*tokenizer));
    TokenArray tokens(tokenizer->vocab_size());
    while (const auto each = reader.next()) append(encode_portion(*each, options, *tokenizer), tokens);
    std::vector<int32_t> ids(static_cast<size_t>(tokens.size()));
    tokens.read(0, ids);
    return ids;
  };
  const std::string pretty = OrderedJson::parse(kFirst).dump(2);
  const std::vector<int32_t> expected = tokens_of("a.jsonl", kFirst + "\n" + kSecond + "\n" + kFirst, 1000);
  for (const size_t portion : {1, 100, 1000}) {
    EXPECT_EQ(tokens_of("a.json", "[" + kFirst + "," + kSecond + ", " + pretty + " ]\n", portion), expected);
    EXPECT_EQ(tokens_of("b.json", pretty + "\n" + kSecond + "\n" + kFirst, portion), expected);
  }
  // A list of messages is one conversation.
  const std::string list = OrderedJson::parse(kFirst)["messages"].dump(1);
  EXPECT_EQ(tokens_of("c.json", list, 1000), tokens_of("d.jsonl", kFirst, 1000));
  EXPECT_THAT(message_of<ConfigError>([&] { tokens_of("e.json", "[" + kFirst + ",\n\n{\"x\": 1}]", 1000); }),
              HasSubstr("e.json:3: is no conversation"));
  EXPECT_THAT(message_of<ConfigError>([&] { tokens_of("f.json", "[" + kFirst + "]\nmore", 1000); }),
              HasSubstr("f.json:2: column 1: is no JSON"));
  EXPECT_THAT(message_of<ConfigError>([&] { tokens_of("g.json", "[" + kFirst + ",\n" + kFirst.substr(0, 50), 10); }),
              HasSubstr("g.json:2: "));
}

/// Where keys keep their order, each is compared with all before it.
TEST(CorpusKind, an_object_of_very_many_keys_is_refused_where_their_order_counts) {
  std::string many = R"({"text": "x", "more": {"0": 0)";
  for (int i = 1; i < 100'000; ++i) many += fmt::format(",\"{}\":0", i);
  many += "}";
  EXPECT_EQ(kind_of("a.jsonl", many + "}").format, CorpusFormat::jsonl);
  const TempFolder folder;
  const auto tokenizer = make_tokenizer("bytes");
  const CorpusOptions options{.chat = chat_source(ChatFormat::zephyr, *tokenizer)};
  const std::string chat = many + R"(, "messages": [{"role": "user", "content": "x"}]})";
  CorpusReader reader({folder.write("a.jsonl", kFirst + "\n" + chat)}, options, cut_point_of(*tokenizer));
  EXPECT_THAT(message_of<ConfigError>([&] { encode_portion(*reader.next(), options, *tokenizer); }),
              HasSubstr("a.jsonl:2: an object has 100000 keys, more than 5000"));
}

TEST(CorpusKind, what_is_no_text_is_refused_by_its_name) {
  std::string noise;
  for (int i = 0; i < 4000; ++i) noise += static_cast<char>(1 + (i * 7919 + i / 13) % 255);
  EXPECT_THAT(refusal_of("t.pdf", "%PDF-1.7\nobj"), HasSubstr("t.pdf: expected text, this is a PDF document"));
  EXPECT_THAT(refusal_of("t.txt", "PK\x03\x04zip"), HasSubstr("ZIP archive"));
  EXPECT_THAT(refusal_of("t.jsonl", "\x1f\x8b..."), HasSubstr("gunzip"));
  EXPECT_THAT(refusal_of("t.txt", noise), HasSubstr("no UTF-8 text"));
  EXPECT_EQ(kind_of("t.txt", noise, {.format = CorpusFormat::text}).format, CorpusFormat::text);
  EXPECT_EQ(kind_of("t.txt", "Un caf\xe9 \xe0 la cr\xe8me, s'il vous pla\xeet, et l'addition. Merci bien.").format,
            CorpusFormat::text)
      << "Latin-1";
}

TEST(CorpusKind, preferences_are_named_as_what_they_are) {
  EXPECT_THAT(refusal_of("p.jsonl", R"({"prompt": "a", "chosen": "b", "rejected": "c"})"),
              HasSubstr("p.jsonl: holds pairs of answers (chosen and rejected): alignment.method"));
  EXPECT_THAT(refusal_of("p.json", R"([{"prompt": "a", "completion": "b", "label": true}])"),
              HasSubstr("holds answers with labels (completion and label)"));
  EXPECT_EQ(kind_of("p.jsonl", R"({"prompt": "a", "completion": "b", "label": "x"})").format, CorpusFormat::chat);
  const CorpusOptions pairs{.format = CorpusFormat::preference};
  EXPECT_FALSE(kind_of("p.jsonl", R"({"chosen": "b", "rejected": "c"})", pairs).form);
  EXPECT_TRUE(kind_of("p.jsonl", R"({"chosen": [], "rejected": []})", pairs).form);
}

TEST(CorpusKind, text_beside_a_template_and_json_of_no_known_form_are_never_silent) {
  const TempFolder folder;
  const auto tokenizer = make_tokenizer("bytes");
  const std::vector files{folder.write("a.txt", "Plain text."), folder.write("b.json", R"([{"q": "x", "a": "y"}])")};
  EXPECT_THAT(describe_formats(files, {}, *tokenizer), ElementsAre(HasSubstr("b.json: JSON without conversations")));
  const CorpusOptions chat{.chat = chat_source(ChatFormat::zephyr, *tokenizer)};
  EXPECT_THAT(describe_formats(std::span(files).first(1), chat, *tokenizer),
              ElementsAre(HasSubstr("a.txt: plain text, all of it trained")));
  EXPECT_THAT(message_of<ConfigError>([&] { describe_formats(files, chat, *tokenizer); }),
              HasSubstr("b.json: its records have the keys q, a, "));
}

}  // namespace
}  // namespace corpus_kind_test
}  // namespace nought
