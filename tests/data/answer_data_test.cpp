// Pairs of answers in the forms that TRL reads, and what becomes of them.
#include "nought/data/answer_data.h"

#include "support/message_of.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"
#include "nought/chat/preference.h"
#include "nought/data/step_source.h"

namespace nought::answer_data_test {
namespace {

using test::message_of;
using test::TempFolder;
using testing::ElementsAre;
using testing::HasSubstr;

PreferenceRecord record_of(const char* json) { return read_preference(OrderedJson::parse(json)); }

TEST(Preference, the_prompt_is_given_or_what_both_answers_begin_with) {
  const PreferenceRecord given = record_of(R"({"prompt": "Sky?", "chosen": " Blue", "rejected": " Green"})");
  EXPECT_EQ(given.prompt.text + "|" + given.chosen.text + "|" + given.rejected.text, "Sky?| Blue| Green");
  const PreferenceRecord implicit = record_of(R"({"chosen": "Sky? Blue", "rejected": "Sky? Green"})");
  EXPECT_EQ(implicit.prompt.text + "|" + implicit.chosen.text + "|" + implicit.rejected.text, "Sky?| Blue| Green");
  const PreferenceRecord longer = record_of(R"({"chosen": "ab", "rejected": "abc"})");
  EXPECT_EQ(longer.prompt.text + "|" + longer.chosen.text + "|" + longer.rejected.text, "a|b|bc");
  // Characters that share their first byte are not torn.
  const PreferenceRecord umlauts = record_of(R"({"chosen": "x\u00e4", "rejected": "x\u00f6"})");
  EXPECT_EQ(umlauts.prompt.text, "x");
}

TEST(Preference, answers_may_be_messages_that_begin_with_the_prompt) {
  const PreferenceRecord record = record_of(R"({"prompt": "Sky?",
      "chosen": [{"role": "user", "content": "Sky?"}, {"role": "assistant", "content": "Blue"}],
      "rejected": [{"role": "user", "content": "Sky?"}, {"role": "assistant", "content": "Green"}]})");
  ASSERT_EQ(record.prompt.messages.size(), 1U);
  EXPECT_EQ(record.prompt.messages[0].content, "Sky?");
  ASSERT_EQ(record.rejected.messages.size(), 1U);
  EXPECT_EQ(record.rejected.messages[0].content, "Green");
}

TEST(Preference, what_is_no_pair_is_refused) {
  const auto refusal = [](const char* json) { return message_of<ConfigError>([&] { record_of(json); }); };
  EXPECT_THAT(refusal(R"({"prompt": "a", "chosen": "b"})"), HasSubstr("has no \"rejected\""));
  EXPECT_THAT(refusal(R"({"prompt": "a", "chosen": 1, "rejected": "c"})"), HasSubstr("\"chosen\" is"));
  EXPECT_THAT(refusal(R"({"chosen": "b", "rejected": []})"), HasSubstr("one is a text and the other"));
  EXPECT_THAT(refusal(R"({"prompt": [], "chosen": "b", "rejected": "c"})"), HasSubstr("write all as texts"));
  EXPECT_THAT(refusal(R"({"prompt": [], "chosen": [], "rejected": []})"), HasSubstr("\"chosen\" has no message"));
}

TEST(Completed, end_with_the_answer_of_an_assistant) {
  const LabelledRecord text = read_completed(OrderedJson::parse(R"({"prompt": "Sky?", "completion": " Blue"})"));
  EXPECT_EQ(text.prompt.text + "|" + text.completion.text, "Sky?| Blue");
  const LabelledRecord chat = read_completed(OrderedJson::parse(
      R"({"messages": [{"role": "user", "content": "Sky?"}, {"role": "assistant", "content": "Blue"}]})"));
  EXPECT_TRUE(chat.conversational);
  ASSERT_EQ(chat.prompt.messages.size(), 1U);
  EXPECT_EQ(chat.completion.messages.at(0).content, "Blue");
  const auto refusal = [](const char* json) {
    return message_of<ConfigError>([&] { read_completed(OrderedJson::parse(json)); });
  };
  EXPECT_THAT(refusal(R"({"messages": [{"role": "user", "content": "Sky?"}]})"), HasSubstr("must end with an answer"));
  EXPECT_THAT(refusal(R"({"prompt": "Sky?"})"), HasSubstr("has no \"completion\""));
}

TEST(ScoredTexts, have_labels_of_their_problem) {
  const ScoredRecord text = read_scored(OrderedJson::parse(R"({"review": "good", "label": true})"), "review");
  EXPECT_EQ(text.text.text, "good");
  EXPECT_THAT(text.wanted, ElementsAre(1));
  const ScoredRecord parted =
      read_scored(OrderedJson::parse(R"({"prompt": "a", "completion": "b", "labels": [0, 0.5]})"), "text");
  EXPECT_EQ(parted.text.text, "ab");
  EXPECT_TRUE(parted.ends);
  EXPECT_THAT(parted.wanted, ElementsAre(0, 0.5));
  EXPECT_THAT(
      message_of<ConfigError>([&] { read_scored(OrderedJson::parse(R"({"text": "a", "label": "x"})"), "text"); }),
      HasSubstr("\"label\" is"));
}

class Answers : public testing::Test {
 protected:
  AnswerData read(const std::string& text, int64_t max_length = 1024) {
    const std::vector<DataSource> sources{{{folder.write("pairs.jsonl", text)}, 0}};
    return AnswerData::read(sources, *tokenizer, {.max_length = max_length});
  }
  std::string text_of(const JudgedAnswer& answer) { return tokenizer->decode(answer.ids); }

  TempFolder folder;
  std::unique_ptr<Tokenizer> tokenizer = make_tokenizer("bytes");
};

TEST_F(Answers, begin_behind_the_prompt_and_end_with_the_separator) {
  const AnswerData data = read("{\"prompt\": \"ab\", \"chosen\": \"cd\", \"rejected\": \"e\"}\n");
  ASSERT_EQ(data.num_pairs(), 1);
  const JudgedAnswer chosen = data.answer(0), rejected = data.answer(1);
  EXPECT_THAT(std::vector(chosen.ids.begin(), chosen.ids.end()), ElementsAre('a', 'b', 'c', 'd', 0));
  EXPECT_EQ(chosen.begin, 2);
  EXPECT_EQ(rejected.targets(), 2);
  EXPECT_EQ(data.num_tokens(), 9);
  EXPECT_EQ(data.num_targets(), 5);
  EXPECT_EQ(data.tokens_of_pair(0), 9);
  EXPECT_TRUE(data.notes().empty());
}

TEST_F(Answers, that_are_too_long_are_cut_and_what_teaches_nothing_is_left_out_and_counted) {
  const AnswerData data = read(
      "{\"prompt\": \"ab\", \"chosen\": \"cdefgh\", \"rejected\": \"i\"}\n"
      "{\"prompt\": \"ab\", \"chosen\": \"c\", \"rejected\": \"c\"}\n"
      "{\"prompt\": \"abcdef\", \"chosen\": \"g\", \"rejected\": \"h\"}\n",
      6);
  EXPECT_EQ(data.num_pairs(), 1);
  EXPECT_EQ(text_of(data.answer(0)), "abcdef");
  EXPECT_THAT(data.notes(), ElementsAre(HasSubstr("1 of 3 pairs have the same answer twice"),
                                        HasSubstr("1 of 3 pairs have a prompt of at least max_length 6"),
                                        HasSubstr("1 of 2 answers with their prompts are longer")));
  EXPECT_THAT(message_of<ConfigError>([&] { read("{\"chosen\": \"a\", \"rejected\": \"a\"}\n"); }),
              HasSubstr("no pair of answers to train on: 1 have the same answer twice"));
}

TEST_F(Answers, with_labels_have_the_answer_of_their_neighbour_beside) {
  std::string text = "{\"prompt\": \"ab\", \"chosen\": \"c\", \"rejected\": \"d\"}\n";
  for (const char* answer : {"x", "y", "z"})
    text += fmt::format("{{\"prompt\": \"p{0}\", \"completion\": \"{0}\", \"label\": false}}\n", answer);
  const std::vector<DataSource> sources{{{folder.write("labels.jsonl", text)}, 0}};
  const AnswerData data = AnswerData::read(sources, *tokenizer, {.form = AnswerForm::labelled, .block = 3});
  ASSERT_EQ(data.num_pairs(), 5);
  const std::string end(1, '\0');
  std::string own, others;
  for (int64_t i = 0; i < 5; ++i) own += text_of(data.answer(2 * i)), others += text_of(data.answer(2 * i + 1));
  EXPECT_EQ(own, "abc" + end + "abd" + end + "pxx" + end + "pyy" + end + "pzz" + end);
  EXPECT_EQ(others, "abx" + end + "abc" + end + "pxd" + end + "pyz" + end + "pzy" + end) << "blocks of three, then two";
  EXPECT_EQ(data.answer(0).label, AnswerLabel::desirable);
  EXPECT_EQ(data.answer(2).label, AnswerLabel::undesirable);
  EXPECT_EQ(data.answer(1).label, AnswerLabel::unjudged);
}

TEST_F(Answers, that_are_scored_whole_are_never_cut) {
  const std::vector<DataSource> sources{
      {{folder.write("pairs.jsonl",
                     "{\"prompt\": \"ab\", \"chosen\": \"c\", \"rejected\": \"d\", \"margin\": 0.5}\n"
                     "{\"prompt\": \"ab\", \"chosen\": \"c\", \"rejected\": \"long\"}\n"
                     "{\"prompt\": \"ab\", \"chosen\": \"e\", \"rejected\": \"f\"}\n")},
       0}};
  const AnswerData data = AnswerData::read(sources, *tokenizer, {.form = AnswerForm::rewards, .max_length = 5});
  ASSERT_EQ(data.num_pairs(), 2);
  EXPECT_EQ(text_of(data.answer(3)), "abf" + std::string(1, '\0'));
  EXPECT_THAT(data.answer(0).wanted, ElementsAre(0.5));
  EXPECT_TRUE(data.answer(2).wanted.empty());
  EXPECT_THAT(data.notes(), ElementsAre(HasSubstr("1 of 3 pairs have a text longer than max_length 5")));
}

TEST_F(Answers, may_be_texts_for_a_classifier) {
  const auto read_texts = [&](const char* text, int64_t labels) {
    const std::vector<DataSource> sources{{{folder.write("texts.jsonl", text)}, 0}};
    return AnswerData::read(sources, *tokenizer, {.form = AnswerForm::scored, .max_length = 3, .labels = labels});
  };
  const AnswerData data = read_texts("{\"text\": \"abcd\", \"label\": 1}\n{\"text\": \"x\", \"label\": 0}\n", 2);
  ASSERT_EQ(data.num_pairs(), 2);
  EXPECT_EQ(text_of(data.answer(0)), "abc");
  EXPECT_THAT(data.answer(0).wanted, ElementsAre(1));
  EXPECT_FALSE(data.trained().second);
  EXPECT_EQ(data.tokens_of_pair(0), 3);
  EXPECT_THAT(data.notes(), ElementsAre("1 of 2 texts are longer than max_length 3: their ends are cut"));
  const auto refusal = [&](const char* text) { return message_of<ConfigError>([&] { read_texts(text, 2); }); };
  EXPECT_THAT(refusal("{\"text\": \"a\", \"label\": 2}"),
              HasSubstr("texts.jsonl:1: the label must be the index of one of 2 classes"));
  EXPECT_THAT(refusal("{\"text\": \"a\"}"), HasSubstr("texts.jsonl:1: has no \"label\""));
  EXPECT_EQ(read_texts("{\"text\": \"a\"}", 0).num_pairs(), 1);
}

TEST_F(Answers, are_written_by_the_chat_template_on_the_day_of_training) {
  const std::string path = folder
                               .write("chat.jinja",
                                      "{{ strftime_now('%Y') }}{% for m in messages %}<{{ m['role'][0] }}>"
                                      "{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}<a>{% endif %}")
                               .string();
  const std::string text =
      R"({"prompt": [{"role": "user", "content": "Q"}], "chosen": [{"role": "assistant", "content": "Y"}], )"
      R"("rejected": [{"role": "assistant", "content": "N"}]})";
  const std::vector<DataSource> sources{{{folder.write("pairs.jsonl", text)}, 0}};
  const std::vector<std::filesystem::path>& files = sources[0].files;
  const CorpusOptions corpus = with_template({.format = CorpusFormat::preference}, files, path, "bytes", *tokenizer);
  const AnswerData data = AnswerData::read(sources, *tokenizer, {.corpus = corpus});
  EXPECT_EQ(text_of(data.answer(0)), "2024<u>Q<a>Y");
  EXPECT_EQ(text_of(data.answer(1)), "2024<u>Q<a>N");
  EXPECT_EQ(data.answer(0).begin, 11);
  EXPECT_EQ(data.answer(0).targets(), 1);
  EXPECT_THAT(describe_formats(files, corpus, *tokenizer), ElementsAre(HasSubstr("judged answers, written as")));
}

TEST_F(Answers, name_file_and_line_of_what_is_malformed) {
  EXPECT_THAT(message_of<ConfigError>([&] { read("{\"chosen\": \"a\", \"rejected\": \"b\"}\n{\"chosen\": \"a\"}\n"); }),
              HasSubstr("pairs.jsonl:2: has no \"rejected\""));
  const std::vector<DataSource> tokens{{{folder / "a.tokens"}, 0}};
  EXPECT_THAT(message_of<ConfigError>([&] { AnswerData::read(tokens, *tokenizer, {}); }),
              HasSubstr("token files hold no pairs of answers"));
}

TEST_F(Answers, are_split_at_the_end_of_their_source) {
  std::string text;
  for (int i = 0; i < 10; ++i)
    text += fmt::format("{{\"prompt\": \"p\", \"chosen\": \"c{}\", \"rejected\": \"r\"}}\n", i);
  const AnswerData data = read(text);
  const auto [training, tail] = data.split_tail(0.2);
  EXPECT_EQ(training.num_pairs(), 8);
  ASSERT_EQ(tail.num_pairs(), 2);
  EXPECT_EQ(text_of(tail.answer(0)), "pc8" + std::string(1, '\0'));
  EXPECT_NE(training.fingerprint(), data.fingerprint());
  EXPECT_EQ(read(text).fingerprint(), data.fingerprint());
  EXPECT_EQ(data.shares().size(), 1U);
  EXPECT_THAT(message_of<ConfigError>([&] { data.split_tail(0.01); }), HasSubstr("less than one"));
}

}  // namespace
}  // namespace nought::answer_data_test
