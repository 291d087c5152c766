#include "nought/train/run_data.h"

#include "support/byte_level.h"
#include "support/in_folder.h"
#include "support/message_of.h"
#include "support/tiny_llama.h"
#include "support/token_file.h"
#include "support/trainer_runs.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/chat/chat_template.h"
#include "nought/config/run_config.h"
#include "nought/data/token_file.h"
#include "nought/text/tokenizer_export.h"
#include "nought/train/validate_run.h"

namespace nought::run_data_test {
namespace {

using test::message_of;
using test::TempFolder;
using test::write_tokens;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

std::string some_text(int seed) {
  std::string text;
  for (int i = 0; i < 90; ++i) text += fmt::format("line {} of text {}.\n", (i * seed) % 23, seed);
  return text;
}

nlohmann::json run_of(const TempFolder& folder, nlohmann::json data) {
  data["seq_length"] = 16;
  return {{"model", test::tiny_llama_json()},
          {"data", data},
          {"training",
           {{"max_steps", 6},
            {"learning_rate", 3e-3},
            {"per_device_train_batch_size", 4},
            {"output_dir", (folder / "out").string()}}}};
}

RunPlan plan_of(const nlohmann::json& run, int ranks = 1) { return resolve(make_run_config(run, "RUN.json"), ranks); }

std::string error_of(const TempFolder& folder, const nlohmann::json& data) {
  return message_of<ConfigError>([&] { plan_of(run_of(folder, data)); });
}

std::vector<double> train(const nlohmann::json& run, int ranks = 1, StartMode mode = StartMode::overwrite) {
  return test::run_plan(plan_of(run, ranks), {.ranks = ranks, .mode = mode}).losses();
}

class DataOfRuns : public test::InFolder {
 protected:
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer("bytes");
};

TEST_F(DataOfRuns, a_token_file_trains_as_the_text_that_it_was_made_from) {
  const std::string text = folder.write("a.txt", some_text(3)), tokens = write_tokens(folder, "a.tokens", some_text(3));
  EXPECT_EQ(train(run_of(folder, {{"files", {text}}})), train(run_of(folder, {{"files", {tokens}}})));
}

TEST_F(DataOfRuns, a_mixture_takes_its_weights_from_the_run) {
  const std::string a = folder.write("a.txt", some_text(3)), b = write_tokens(folder, "b.tokens", some_text(5));
  const RunPlan plan =
      plan_of(run_of(folder, {{"sources", {{{"files", {a}}, {"weight", 3}}, {{"files", {b}}, {"weight", 1}}}}}));
  const RunData data = open_data(plan, *tokenizer);
  ASSERT_EQ(data.training.shares().size(), 2u);
  EXPECT_EQ(data.training.shares()[0].weight, 0.75);
  EXPECT_EQ(data.training.shares()[1].weight, 0.25);
  EXPECT_FALSE(data.validation);
}

TEST_F(DataOfRuns, validation_is_a_split_or_files_of_its_own) {
  const std::string a = folder.write("a.txt", some_text(3)), b = folder.write("b.txt", some_text(5));
  const auto open = [&](const nlohmann::json& data) { return open_data(plan_of(run_of(folder, data)), *tokenizer); };
  const RunData whole = open({{"files", {a}}}), own = open({{"files", {a}}, {"validation_files", {b}}});
  EXPECT_EQ(own.training.fingerprint(), whole.training.fingerprint());
  EXPECT_EQ(own.validation->fingerprint(), open({{"files", {b}}}).training.fingerprint());
  const RunData split = open({{"files", {a}}, {"validation_fraction", 0.25}});
  EXPECT_EQ(split.training.num_samples() + split.validation->num_samples(), whole.training.num_samples());
}

TEST_F(DataOfRuns, what_contradicts_itself_is_refused) {
  const nlohmann::json one{{"files", {"a"}}}, weighted{{"files", {"a"}}, {"weight", 1}};
  EXPECT_THAT(error_of(folder, {{"files", {"a"}}, {"sources", {one}}}), HasSubstr("both given"));
  EXPECT_THAT(error_of(folder, {{"sources", {one, weighted}}}), HasSubstr("sources[1]: give all"));
  EXPECT_THAT(error_of(folder, {{"sources", {{{"files", {"a"}}, {"weight", -1}}}}}), HasSubstr("got -1"));
  EXPECT_THAT(error_of(folder, {{"sources", {{{"weight", 1}}}}}), HasSubstr("sources[0].files is empty"));
  EXPECT_THAT(error_of(folder, {{"files", {"a"}}, {"validation_files", {"b"}}, {"validation_fraction", 0.1}}),
              HasSubstr("choose one"));
}

TEST_F(DataOfRuns, of_more_text_than_is_to_be_read_the_beginnings_are) {
  std::string lines;
  for (int i = 0; i < 4000; ++i) lines += fmt::format("{{\"text\": \"{:>100}\"}}\n", i);
  const std::string a = folder.write("a.txt", std::string(400'000, 'x')), b = folder.write("b.jsonl", lines + "[]\n");
  const RunPlan plan = plan_of(run_of(folder, {{"files", {a, b}}}));
  const DataLook look = look_at_data(plan, *tokenizer, 200'000);
  EXPECT_FALSE(look.whole);
  EXPECT_EQ(look.files, 2);
  EXPECT_GE(look.read_bytes, 200'000);
  EXPECT_LT(look.read_bytes, look.text_bytes / 2);
  EXPECT_THAT(look.describe("bytes"), HasSubstr("2 files with 832.0 KiB of text (tokenizer bytes): looked at "));
  EXPECT_THAT(message_of<ConfigError>([&] { look_at_data(plan, *tokenizer, int64_t{1} << 20); }),
              HasSubstr("b.jsonl:4001: expected an object"));
  folder.write("b.jsonl", "5\n" + lines);
  EXPECT_THAT(message_of<ConfigError>([&] { look_at_data(plan, *tokenizer, 200'000); }), HasSubstr("b.jsonl:1:"));
}

std::string chats(int count, int size, const char* role = "assistant") {
  std::string lines;
  for (int i = 0; i < count; ++i)
    lines += fmt::format(R"({{"messages": [{{"role": "user", "content": "?"}}, {{"role": "{}", "content": "{}"}}]}})",
                         role, std::string(static_cast<size_t>(size), 'x')) +
             "\n";
  return lines;
}

TEST_F(DataOfRuns, data_without_a_trained_token_is_refused_and_the_share_of_others_is_told) {
  RunPlan plan = plan_of(run_of(
      folder, {{"files", {folder.write("u.jsonl", chats(9, 20, "user")).string()}}, {"chat_template", "zephyr"}}));
  EXPECT_THAT(message_of<ConfigError>([&] { open_data(plan, *tokenizer); }),
              HasSubstr("no token of the data would be"));
  EXPECT_THAT(message_of<ConfigError>([&] { look_at_data(plan, *tokenizer, 10); }), HasSubstr("no token of the data"));
  plan.data.sources = {{{folder.write("a.jsonl", chats(9, 20)).string()}}};
  const RunData data = open_data(plan, *tokenizer);
  int64_t targets = 0;
  for (int64_t i = 0; i < data.training.num_samples(); ++i) targets += data.training.num_targets(i);
  EXPECT_EQ(data.targets, targets);
  EXPECT_THAT(look_at_data(plan, *tokenizer, 1 << 20).describe("bytes"),
              HasSubstr(describe_tokens(data.training.num_tokens(), targets, "bytes") + ", "));
  EXPECT_EQ(describe_tokens(2000, 500, "bytes"), "2.00K tokens (tokenizer bytes), 25% of them trained");
}

TEST_F(DataOfRuns, nothing_is_said_of_the_share_that_is_trained_where_all_text_is) {
  const RunPlan plan =
      plan_of(run_of(folder, {{"files", {folder.write("a.txt", std::string(100'000, 'x')).string()}}}));
  for (const int64_t text_bytes : {1 << 20, 1 << 10})
    EXPECT_THAT(look_at_data(plan, *tokenizer, text_bytes).describe("bytes"), Not(HasSubstr("trained")));
  const RunData data = open_data(plan, *tokenizer);
  EXPECT_THAT(describe_tokens(data.training.num_tokens(), data.targets, "bytes"), EndsWith(" (tokenizer bytes)"));
}

TEST_F(DataOfRuns, conversations_longer_than_a_sample_are_counted_with_the_length_that_has_room) {
  const std::string file = folder.write("a.jsonl", chats(1, 900) + chats(198, 20) + chats(1, 300)).string();
  RunPlan plan = plan_of(run_of(folder, {{"files", {file}}, {"chat_template", "zephyr"}}));
  const auto notes = [&](int64_t length) {
    plan.layout.seq_length = length;
    return fmt::format("{}", fmt::join(open_data(plan, *tokenizer).notes, "\n"));
  };
  plan.layout.seq_length = 16;
  const ConversationLengths lengths = open_data(plan, *tokenizer).training.conversation_lengths();
  EXPECT_EQ(lengths.count, 200);
  EXPECT_EQ(lengths.longest - lengths.most_of_99, 880) << "200 x 99% are the short ones";
  const int64_t small = lengths.most_of_99;
  EXPECT_THAT(
      notes(16),
      AllOf(HasSubstr("200 of 200 conversations are longer than data.seq_length 16"),
            HasSubstr(fmt::format("--set data.seq_length={} has room for all, {} for 99%", lengths.longest, small))));
  EXPECT_THAT(notes(small), AllOf(HasSubstr("2 of 200 conversations are longer"), testing::Not(HasSubstr("99%"))));
  EXPECT_THAT(notes(lengths.longest), testing::Not(HasSubstr("conversations are longer")));
}

TEST_F(DataOfRuns, validation_without_a_target_is_refused_when_the_data_is_opened) {
  const std::string a = folder.write("a.txt", some_text(3)), none = folder.write("none.txt", "");
  const RunPlan plan = plan_of(run_of(folder, {{"files", {a}}, {"validation_files", {none}}}));
  EXPECT_THAT(message_of<ConfigError>([&] { open_data(plan, *make_tokenizer("bytes")); }),
              HasSubstr("the data to validate with has no target"));
}

TEST_F(DataOfRuns, a_token_file_of_another_tokenizer_is_refused_before_the_run) {
  TokenFileWriter writer(300, 7);
  writer.add(std::vector<int32_t>{1, 2, 3});
  writer.write(folder / "other.tokens");
  const RunPlan plan = plan_of(run_of(folder, {{"files", {(folder / "other.tokens").string()}}}));
  EXPECT_THAT(message_of<ConfigError>([&] { validate_run(plan, StartMode::fresh); }), HasSubstr("another tokenizer"));
}

// The mask leaves 1 of 3 tokens as targets, so that ranks hold different numbers of them.
TEST_F(DataOfRuns, masked_targets_count_once_in_every_layout_and_a_resume_goes_on) {
  const std::string masked = write_tokens(folder, "a.tokens", some_text(3), /*kept=*/40);
  nlohmann::json run = run_of(folder, {{"files", {masked}}, {"separate_documents", true}});
  const std::vector<double> one = train(run);
  EXPECT_NE(one, train(run_of(folder, {{"files", {write_tokens(folder, "b.tokens", some_text(3))}}})));
  run["training"]["per_device_train_batch_size"] = 2;
  run["deepspeed"]["zero_optimization"]["stage"] = 3;
  run["training"]["save_steps"] = 3;
  const std::vector<double> two = train(run, 2);
  ASSERT_EQ(one.size(), two.size());
  for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], two[i], 1e-5) << "step " << i;
  std::filesystem::remove_all(folder / "out/checkpoint-6");
  const std::vector<double> rest = train(run, 2, StartMode::resume);
  EXPECT_EQ(rest, std::vector<double>(two.begin() + 3, two.end()));
}

RunPlan plan_for(const std::string& file) {
  RunPlan plan;
  plan.data.sources = {{{file}}};
  plan.layout.seq_length = 8;
  return plan;
}

/// The plan of a run on a file of one conversation.
RunPlan talk_plan(const TempFolder& folder) {
  const std::string file =
      folder.write("talk.jsonl", "{\"prompt\": \"Who?\", \"completion\": \"Me <|endoftext|>.\"}\n").string();
  RunPlan plan = plan_for(file);
  plan.data.add_special_tokens = {"<|im_start|>", "<|im_end|>"};
  return plan;
}

TEST_F(DataOfRuns, conversations_bring_their_template_and_the_tokens_that_end_an_answer) {
  RunPlan plan = talk_plan(folder);
  const auto tokenizer = tokenizer_of(plan.data);
  const RunData data = open_data(plan, *tokenizer);
  EXPECT_EQ(data.stop_ids, (std::vector<int32_t>{257, 0}));
  EXPECT_EQ(data.chat_template, chat_source(ChatFormat::chatml, *tokenizer).jinja) << "told by the markers";
  plan.data.chat_template = "zephyr";
  EXPECT_EQ(open_data(plan, *tokenizer).chat_template, chat_source(ChatFormat::zephyr, *tokenizer).jinja);
  EXPECT_EQ(open_data(plan, *tokenizer).stop_ids, std::vector<int32_t>{0});
  plan = plan_for(folder.write("text.txt", "just text, and enough of it").string());
  EXPECT_EQ(open_data(plan, *tokenizer).chat_template, "");
  EXPECT_TRUE(open_data(plan, *tokenizer).stop_ids.empty());
}

TEST_F(DataOfRuns, an_exported_template_begins_with_the_marker_that_was_trained_if_there_is_one) {
  RunPlan plan = talk_plan(folder);
  plan.data.chat_template = "mistral";
  const auto exported = [&] { return open_data(plan, *tokenizer_of(plan.data)).chat_template; };
  EXPECT_THAT(exported(), testing::Not(HasSubstr("<s>")));
  plan.data.add_special_tokens = {"<s>"};
  EXPECT_THAT(exported(), testing::StartsWith("{{- '<s>' }}\n"));
}

TEST_F(DataOfRuns, a_template_of_the_tokenizers_folder_stays_that_of_the_folder) {
  std::filesystem::create_directory(folder / "words");
  export_tokenizer({"bytes",
                    {"<|im_start|>", "<|im_end|>"},
                    "{% for m in messages %}{{ '<|im_start|>' + m.role + ' ' + m.content + '<|im_end|>' }}{% endfor %}"
                    "{% if add_generation_prompt %}<|im_start|>assistant {% endif %}"},
                   folder / "words");
  RunPlan plan = talk_plan(folder);
  plan.data.add_special_tokens.clear();
  plan.data.tokenizer = (folder / "words").string();
  const auto tokenizer = tokenizer_of(plan.data);
  EXPECT_EQ(open_data(plan, *tokenizer).chat_template, "");
  EXPECT_EQ(open_data(plan, *tokenizer).stop_ids, (std::vector<int32_t>{257, 0}));
  plan.data.chat_template = "chatml";
  EXPECT_NE(open_data(plan, *tokenizer).chat_template, "") << "the named one was trained";
}

TEST_F(DataOfRuns, special_tokens_in_text_are_text_unless_the_run_asks_for_them_and_in_messages_always) {
  RunPlan plan = talk_plan(folder);
  plan.data.add_special_tokens = {"<|endoftext|>"};
  plan.data.chat_template = "zephyr";
  const auto tokenizer = tokenizer_of(plan.data);
  const auto marker = tokenizer->find("<|endoftext|>");
  const auto count = [&](const RunPlan& data) {
    const RunData opened = open_data(data, *tokenizer);
    std::vector<int32_t> inputs(8), targets(8);
    int64_t found = 0;
    for (int64_t i = 0; i < opened.training.num_samples(); ++i) {
      opened.training.sample(i, inputs, targets);
      found += std::count(inputs.begin(), inputs.end(), marker);
    }
    return found;
  };
  RunPlan text = plan;
  text.data.sources = {{{folder.write("a.txt", "one<|endoftext|>two<|endoftext|>three and more text").string()}}};
  EXPECT_EQ(count(text), 0);
  text.data.parse_special_tokens = plan.data.parse_special_tokens = true;
  EXPECT_EQ(count(text), 2);
  EXPECT_EQ(count(plan), 0);
}

TEST_F(DataOfRuns, tokens_that_fill_no_sample_are_told_where_they_are_many) {
  RunPlan plan = plan_for(folder.write("a.txt", std::string(99, 'a')).string());  // and the end of the document
  const auto notes = [&](int64_t length) {
    plan.layout.seq_length = length;
    return open_data(plan, *tokenizer).notes;
  };
  EXPECT_THAT(notes(80), testing::ElementsAre("20 of 100 tokens are not trained: they are too few for one more sample "
                                              "of 80; a smaller data.seq_length leaves fewer"));
  EXPECT_THAT(notes(32), testing::IsEmpty()) << "4 tokens";
}

TEST_F(DataOfRuns, files_that_are_not_read_and_markers_that_are_no_tokens_are_refused_before_the_run) {
  RunPlan plan = talk_plan(folder);
  plan.data.chat_template = "chatml";
  EXPECT_THAT(message_of<ConfigError>([&] { look_at_data(plan, *tokenizer, 1 << 20); }),
              HasSubstr("has the markers <|im_start|>, <|im_end|>, which are no tokens of the tokenizer \"bytes\""));
  plan.data.tokenizer = folder.path().string();
  plan.data.chat_template.clear();
  plan.data.add_special_tokens.clear();
  test::byte_level_tokenizer(folder, {"<|im_start|>"});
  folder.write("chat_template.jinja", chat_source(ChatFormat::chatml, *tokenizer).jinja);
  EXPECT_THAT(message_of<ConfigError>([&] { look_at_data(plan, *tokenizer_of(plan.data), 1 << 20); }),
              HasSubstr("chat_template.jinja has the markers <|im_end|>, which are no tokens"))
      << "the folder's own template";
  plan.data.add_special_tokens = {"<|im_end|>"};
  EXPECT_EQ(message_of<ConfigError>([&] { look_at_data(plan, *tokenizer_of(plan.data), 1 << 20); }), "");
  folder.write("chat_template.jinja",
               "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}{{ '<|call|>' if m.tool_calls }}"
               "{% endfor %}{# <|user|> #}");
  EXPECT_THAT(
      look_at_data(plan, *tokenizer_of(plan.data), 1 << 20).notes,
      testing::Contains(HasSubstr("written as text, for want of a token: <|user|>; a conversation that needs one "
                                  "of <|call|> is refused")));
  plan.data.sources.push_back({{folder.write("rows.arrow", "ARROW1").string()}});
  EXPECT_THAT(message_of<ConfigError>([&] { look_at_data(plan, *tokenizer_of(plan.data), 1 << 20); }),
              HasSubstr("rows.arrow: Arrow files are not read: write its rows as Parquet"));
}

}  // namespace
}  // namespace nought::run_data_test
