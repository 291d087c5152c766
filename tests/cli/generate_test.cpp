// Generation as a user runs it: prompts together and one by one, stop strings, files of prompts, conversations.
#include <algorithm>
#include <cctype>
#include <filesystem>

#include "support/golden.h"
#include "support/known_paths.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/json.h"
#include "nought/base/text.h"
#include "nought/io/files.h"

namespace nought::generate_test {
namespace {

using test::Ended;
using test::run_program;
using test::TempFolder;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// A model whose tokens are bytes.
const std::string kModel = test::golden_root() + "/open/llama";

Ended generate(const std::string& options) {
  return run_program(
      fmt::format("{} generate {} --max-new-tokens 12 --seed 3 {}", test::known_path("nought"), kModel, options));
}

TEST(GenerateCommand, guessed_tokens_change_nothing) {
  const std::string options = "--prompt 'int a = 1; int a = 1; int' ";
  const Ended plain = generate(options), guessed = generate(options + "--speculative lookup --speculative-tokens 4");
  EXPECT_EQ(guessed.exit_code, 0) << guessed.err;
  EXPECT_EQ(guessed.out, plain.out);
  EXPECT_THAT(generate(options + "--speculative lookups").err, HasSubstr("--speculative lookups: expected lookup, or"));
  const Ended by_model = generate(options + "--speculative " + kModel);
  EXPECT_EQ(by_model.exit_code, 0) << by_model.err;
  EXPECT_EQ(by_model.out, plain.out);
  EXPECT_THAT(generate(options + "--speculative " + test::golden_root() + "/open/phi3_longrope").err,
              HasSubstr("a phi3 model cannot guess"));
  EXPECT_THAT(generate(options + "--speculative lookup --speculative-tokens 0").err, HasSubstr("must be 1 to 64"));
  const Ended refused =
      run_program(fmt::format("{} generate {}/open/lfm2 --ids 5,9 --max-new-tokens 2 --speculative lookup",
                              test::known_path("nought"), test::golden_root()));
  EXPECT_THAT(refused.err, HasSubstr("--speculative: guessed tokens cannot be taken back"));
  EXPECT_EQ(refused.exit_code, 1);
}

TEST(GenerateCommand, several_prompts_give_the_texts_of_each_alone) {
  TempFolder folder;
  folder.write("lines.txt", "for (int\nreturn\n");
  folder.write("lines.jsonl", "{\"prompt\": \"for (int\"}\n{\"prompt\": \"return\"}\n");
  const Ended one = generate("--prompt 'for (int'"), two = generate("--prompt return");
  ASSERT_EQ(one.exit_code, 0) << one.err;
  EXPECT_THAT(one.out, StartsWith("for (int"));
  EXPECT_GT(one.out.size(), 10u);
  const std::string both = "--- 1 of 2 ---\n" + one.out + "--- 2 of 2 ---\n" + two.out;
  for (const std::string& options :
       {std::string("--prompt 'for (int' --prompt return"), "--prompts-file " + (folder / "lines.txt").string(),
        "--batch-size 1 --prompts-file " + (folder / "lines.jsonl").string()})
    EXPECT_EQ(generate(options).out, both) << options;
}

TEST(GenerateCommand, ranks_that_share_the_model_print_the_text_of_one) {
  const std::string prompts = "--prompt 'for (int' --prompt return";
  const Ended one = generate(prompts), two = generate(prompts + " --ranks 2"),
              both = generate(prompts + " --ranks 4 --tp 2 --pp 2");
  ASSERT_EQ(two.exit_code, 0) << two.err;
  EXPECT_EQ(two.out, one.out);
  EXPECT_EQ(both.out, one.out) << both.err;
  EXPECT_EQ(std::count(two.err.begin(), two.err.end(), '\n'), 1) << two.err;  // the rate, once

  const Ended three = generate(prompts + " --ranks 3");
  EXPECT_EQ(three.exit_code, 1);
  EXPECT_EQ(three.error_lines(), 1) << three.err;
  EXPECT_THAT(three.err,
              HasSubstr("its 4 attention heads do not divide; the nearest that works is --ranks 3 --pp 3\n"));
  const Ended product = generate(prompts + " --ranks 4 --tp 2 --pp 4");
  EXPECT_EQ(product.exit_code, 1);
  EXPECT_THAT(product.err,
              HasSubstr("not the product of --tp, --pp and --ep; the nearest that works is --ranks 4 --pp 4\n"));
}

TEST(GenerateCommand, ranks_that_hold_different_experts_and_layers_print_the_text_of_one) {
  const auto ids = [](const std::string& options) {
    return run_program(fmt::format("{} generate {}/open/qwen2_moe --ids 3,17,4 --max-new-tokens 10 --temperature 0 {}",
                                   test::known_path("nought"), test::golden_root(), options));
  };
  const Ended one = ids(""), two = ids("--ranks 2 --ep 2"), four = ids("--ranks 4 --ep 2"),
              stages = ids("--ranks 4 --pp 2 --tp 1 --ep 2");
  ASSERT_EQ(one.exit_code, 0) << one.err;
  EXPECT_EQ(two.out, one.out) << two.err;
  EXPECT_EQ(four.out, one.out) << four.err;
  EXPECT_EQ(stages.out, one.out) << stages.err;
}

TEST(GenerateCommand, ids_are_continued_with_ids) {
  const Ended ids = generate("--ids 120,121 --temperature 0");
  ASSERT_EQ(ids.exit_code, 0) << ids.err;
  EXPECT_THAT(ids.out, StartsWith("120,121,"));
}

TEST(GenerateCommand, log_probabilities_are_written_for_every_new_token) {
  const TempFolder folder;
  const std::string file = (folder / "logprobs.jsonl").string();
  const Ended ended = generate("--ids 120,121 --ids 7 --temperature 0 --logprobs " + file);
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const std::vector<std::string> lines = split(read_text(file), '\n');
  ASSERT_EQ(lines.size(), 3u);  // the last one is empty
  for (size_t i = 0; i < 2; ++i) {
    const Json line = Json::parse(lines[i]);
    EXPECT_EQ(line.at("prompt"), i);
    ASSERT_EQ(line.at("tokens").size(), 12u);
    ASSERT_EQ(line.at("logprobs").size(), 12u);
    for (const Json& each : line.at("logprobs")) EXPECT_LT(each.get<double>(), 0);
  }
  const Ended nowhere = generate("--ids 7 --logprobs /nowhere/at/all.jsonl");
  EXPECT_NE(nowhere.exit_code, 0);
  EXPECT_THAT(nowhere.err, HasSubstr("--logprobs /nowhere/at/all.jsonl: /nowhere/at is not a folder\n"));
}

TEST(GenerateCommand, text_ends_before_a_stop_string) {
  const std::string prompt = "xyz", text = generate("--temperature 0 --prompt " + prompt).out;
  const auto is_plain = [](unsigned char c) { return std::isalnum(c) != 0; };
  const auto stop = std::find_if(text.begin() + static_cast<long>(prompt.size()), text.end(), is_plain);
  ASSERT_NE(stop, text.end()) << "choose a prompt whose reply has a letter: " << text;
  EXPECT_EQ(generate(fmt::format("--temperature 0 --prompt {} --stop {} --stop QQ", prompt, *stop)).out,
            std::string(text.begin(), stop) + "\n");
}

TEST(GenerateCommand, the_models_own_settings_of_sampling_count_unless_a_flag_does) {
  TempFolder folder;
  std::filesystem::copy(kModel, folder / "model");
  folder.write("model/generation_config.json", R"({"do_sample": true, "temperature": 0.5, "top_k": 1})");
  const auto ended = [&](const std::string& options) {
    return run_program(fmt::format("{} generate {} --ids 5,9 --max-new-tokens 12 {}", test::known_path("nought"),
                                   (folder / "model").string(), options));
  };
  const Ended own = ended("");
  EXPECT_EQ(own.exit_code, 0) << own.err;
  EXPECT_THAT(own.err, StartsWith("[sampling: temperature 0.5, top-k 1 by generation_config.json]\n"));
  EXPECT_EQ(own.out, ended("--temperature 0").out) << "one token is left to choose from";
  const Ended flags = ended("--top-k 0 --temperature 2");
  EXPECT_THAT(flags.err, StartsWith("[sampling: --temperature 2 in place of 0.5, --top-k 0 in place of 1]\n"));
  EXPECT_NE(flags.out, own.out);
}

TEST(GenerateCommand, a_model_without_tokenizer_says_so) {
  const Ended ended = run_program(
      fmt::format("{} generate {}/open/llama_linear --prompt x", test::known_path("nought"), test::golden_root()));
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err, HasSubstr("open/llama_linear has no tokenizer.json"));
}

TEST(GenerateCommand, what_cannot_be_continued_is_one_line) {
  TempFolder folder;
  folder.write("bad.jsonl", "{\"prompt\": \"a\"}\n{\"text\": \"b\"}\n");
  for (const auto& [options, message] : std::initializer_list<std::pair<std::string, const char*>>{
           {"", "--prompts-file or --ids"},
           {"--prompts-file " + (folder / "bad.jsonl").string(), "bad.jsonl:2"},
           {"--prompt x --min-p 2", "min_p"},
           {"--prompt x --repetition-penalty 0", "repetition_penalty"},
           {"--prompt x --stop ''", "--stop"},
           {"--prompt x --batch-size 0", "--batch-size"}}) {
    const Ended ended = generate(options);
    EXPECT_NE(ended.exit_code, 0) << options;
    EXPECT_EQ(ended.error_lines(), 1) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr(message));
    EXPECT_EQ(ended.out, "") << "nothing is printed before options are checked";
  }
}

Ended chat(const std::string& lines, const std::string& options) {
  return run_program(fmt::format("sh -c \"printf '{}' | {} chat {} --max-new-tokens 5 --temperature 0 {}\"", lines,
                                 test::known_path("nought"), kModel, options));
}

TEST(ChatCommand, answers_line_by_line_and_remembers_until_it_is_cleared) {
  const Ended once = chat("hi\\n", "--chat-template chatml");
  ASSERT_EQ(once.exit_code, 0) << once.err;
  EXPECT_THAT(once.err, HasSubstr("template chatml"));
  EXPECT_GE(once.out.size(), 2u);
  const Ended cleared = chat("hi\\n/clear\\nhi\\n/exit\\nnever\\n", "--chat-template chatml");
  EXPECT_EQ(cleared.out, once.out + once.out);
  const Ended told = chat("hi\\n", "--chat-template chatml --system no");
  EXPECT_NE(told.out, once.out) << "the system message is part of the conversation";
}

TEST(ChatCommand, help_lists_the_commands_and_an_unknown_one_is_no_message) {
  const Ended ended = chat("/help\\n/hlep\\n", "--chat-template chatml");
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(ended.out, "") << "the model was asked nothing";
  EXPECT_THAT(ended.err, HasSubstr("/clear  begins a new conversation"));
  EXPECT_THAT(ended.err, HasSubstr("[/hlep is no command"));
}

TEST(ChatCommand, options_are_checked_before_anything_is_said) {
  for (const char* options : {"--chat-template chatml --min-p 2", "--chat-template chatml --stop ''"}) {
    const Ended ended = chat("hi\\n", options);
    EXPECT_NE(ended.exit_code, 0) << options;
    EXPECT_EQ(ended.error_lines(), 1) << ended.err;
  }
}

TEST(ChatCommand, a_conversation_without_room_says_so_and_goes_on) {
  const Ended ended = chat("a line that is far too long for it\\nhi\\n", "--chat-template zephyr --context 40");
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("there is room for 40"));
  EXPECT_FALSE(ended.out.empty());
}

TEST(ChatCommand, a_template_that_nobody_knows_is_one_line) {
  const Ended unknown = chat("hi\\n", "--chat-template chatty");
  EXPECT_NE(unknown.exit_code, 0);
  EXPECT_THAT(unknown.err, HasSubstr("\"chatty\" is not known"));
  EXPECT_EQ(unknown.error_lines(), 1);
}

TEST(ChatCommand, a_model_of_bytes_talks_in_chatml_as_there_is_nothing_to_choose_by) {
  const Ended plain = chat("hi\\n", "");
  EXPECT_EQ(plain.exit_code, 0) << plain.err;
  EXPECT_THAT(plain.err, HasSubstr("template chatml"));
  EXPECT_EQ(plain.out, chat("hi\\n", "--chat-template chatml").out);
}

}  // namespace
}  // namespace nought::generate_test
