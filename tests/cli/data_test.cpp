// Data as a user handles it: text to token files, a run on them, its evaluation, a text of the trained model; and bad
// input, which ends in one line.
#include <cmath>

#include "support/golden.h"
#include "support/known_paths.h"
#include "support/metrics_lines.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace nought::data_test {
namespace {

namespace fs = std::filesystem;
using test::Ended;
using test::run_program;
using test::TempFolder;

const std::string kProgram = test::known_path("nought");
const std::string kTokenizer = test::golden_root() + "/tokenizer/r50k_base.tokenizer.json";

/// Conversations that repeat themselves, so that a few steps learn something.
void write_chats(const TempFolder& folder) {
  std::string lines;
  for (int i = 0; i < 60; ++i)
    lines += nlohmann::json{{"messages",
                             {{{"role", "user"}, {"content", fmt::format("What comes after {}?", i % 7)}},
                              {{"role", "assistant"}, {"content", fmt::format("After it comes {}.", i % 7 + 1)}}}}}
                 .dump() +
             "\n";
  folder.write("chats.jsonl", lines);
}

std::string run_file(const TempFolder& folder) {
  const nlohmann::json run{{"model",
                            {{"model_type", "llama"},
                             {"vocab_size", 256},
                             {"hidden_size", 48},
                             {"intermediate_size", 64},
                             {"num_hidden_layers", 2},
                             {"num_attention_heads", 4},
                             {"max_position_embeddings", 64}}},
                           {"data",
                            {{"files", {(folder / "chats").string()}},
                             {"tokenizer", "bytes"},
                             {"seq_length", 32},
                             {"validation_fraction", 0.2}}},
                           {"training",
                            {{"max_steps", 6},
                             {"per_device_train_batch_size", 4},
                             {"learning_rate", 3e-3},
                             {"eval_strategy", "steps"},
                             {"eval_steps", 3},
                             {"output_dir", (folder / "out").string()}}}};
  return folder.write("run.json", run.dump()).string();
}

Ended run(const std::string& arguments) { return run_program(kProgram + " " + arguments); }

/// The command fails with one line on stderr that contains every one of the words.
void expect_one_line(const std::string& arguments, const std::vector<std::string>& words) {
  const Ended ended = run(arguments);
  EXPECT_NE(ended.exit_code, 0) << arguments;
  EXPECT_LT(ended.exit_code, 124) << arguments;
  EXPECT_EQ(ended.error_lines(), 1) << ended.err;
  for (const std::string& word : words)
    EXPECT_NE(ended.err.find(word), std::string::npos) << word << " in: " << ended.err;
}

nlohmann::json evaluation(const std::string& arguments) {
  const Ended ended = run("eval " + arguments + " --json");
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  const nlohmann::json evaluation = nlohmann::json::parse(ended.out);
  EXPECT_EQ(evaluation.at("format"), "nought-evaluation-1");
  return evaluation;
}

TEST(Data, conversations_become_tokens_that_train_a_model_that_is_evaluated_and_answers) {
  const TempFolder folder;
  write_chats(folder);
  const std::string tokenize = fmt::format(
      "tokenize {0}/chats.jsonl --chat-template zephyr --tokenizer bytes --output "
      "{0}/chats --threads 2",
      folder.path().string());
  const Ended tokens = run(tokenize);
  ASSERT_EQ(tokens.exit_code, 0) << tokens.err;
  EXPECT_NE(tokens.out.find("of 60 documents in 1 file"), std::string::npos) << tokens.out;
  EXPECT_NE(tokens.out.find("of them targets)"), std::string::npos) << tokens.out;
  const Ended again = run(tokenize);
  EXPECT_NE(again.out.find("were there already"), std::string::npos) << again.out;

  const std::string file = run_file(folder);
  const Ended trained = run("train " + file);
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_NE(trained.out.find("validation loss"), std::string::npos) << trained.out;
  std::vector<double> validated;
  for (const auto& line : test::metrics_lines(folder / "out/metrics.jsonl", "eval_loss"))
    validated.push_back(line["eval_loss"]);
  ASSERT_EQ(validated.size(), 2u);
  EXPECT_LT(validated[1], validated[0]);

  // The exported model is as good as the run said, over any number of ranks.
  const std::string model = (folder / "out").string() + " " + file;
  const auto one = evaluation(model), two = evaluation(model + " --ranks 2 --set deepspeed.zero_optimization.stage=3");
  EXPECT_NEAR(one["loss"].get<double>(), validated[1], 1e-6);
  EXPECT_NEAR(one["loss"].get<double>(), two["loss"].get<double>(), 1e-6);
  EXPECT_EQ(one["targets"], two["targets"]);
  EXPECT_GT(one["bits_per_byte"].get<double>(), 0);

  const Ended answer =
      run(fmt::format("generate {} --prompt What --max-new-tokens 5 --seed 1", (folder / "out").string()));
  EXPECT_EQ(answer.exit_code, 0) << answer.err;
  EXPECT_EQ(answer.out.substr(0, 4), "What");
}

TEST(Data, conversations_train_directly_as_their_token_files_do) {
  const TempFolder folder;
  write_chats(folder);
  const std::string at = folder.path().string() + "/", file = run_file(folder);
  ASSERT_EQ(
      run("tokenize " + at + "chats.jsonl --chat-template zephyr --tokenizer bytes --output " + at + "chats").exit_code,
      0);
  const auto losses = [&](const std::string& overrides) {
    const Ended trained = run("train " + file + " --overwrite --set training.max_steps=2" + overrides);
    EXPECT_EQ(trained.exit_code, 0) << trained.err;
    std::vector<double> found;
    for (const auto& line : test::metrics_lines(folder / "out/metrics.jsonl", "loss")) found.push_back(line["loss"]);
    return std::pair(found, trained.out);
  };
  const auto [from_tokens, quiet] = losses("");
  const std::string direct = " --set 'data.files=[\"" + at + "chats.jsonl\"]'";
  const auto [from_lines, out] = losses(direct + " --set data.chat_template=zephyr");
  EXPECT_EQ(from_tokens, from_lines);
  EXPECT_EQ(from_lines.size(), 2u);
  EXPECT_NE(out.find("chats.jsonl: conversations of messages, written as zephyr; what assistants say is trained"),
            std::string::npos)
      << out;
  // Bytes have no markers that would tell the notation.
  expect_one_line("train " + file + " --overwrite" + direct,
                  {"has no markers of a known chat template: name one of chatml"});
}

TEST(Data, a_sample_is_shown_as_the_model_sees_it) {
  const TempFolder folder;
  write_chats(folder);
  const std::string file = run_file(folder), at = (folder / "chats.jsonl").string();
  const auto shown = [&](const std::string& options) {
    return run(
        fmt::format("data show {} --set 'data.files=[\"{}\"]' --set data.chat_template=zephyr --set "
                    "data.seq_length=96 {}",
                    file, at, options));
  };
  const Ended first = shown("");
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_NE(first.out.find("conversations of messages, written as zephyr"), std::string::npos) << first.out;
  EXPECT_NE(first.out.find("sample 0 of "), std::string::npos) << first.out;
  EXPECT_NE(first.out.find("  read     0-"), std::string::npos) << first.out;
  EXPECT_NE(first.out.find("What comes after 0?"), std::string::npos) << first.out;
  const size_t trained = first.out.find("  trained  ");
  ASSERT_NE(trained, std::string::npos) << first.out;
  EXPECT_EQ(first.out.find("\"After it comes 1."), first.out.find('"', trained)) << first.out;
  EXPECT_EQ(first.out.find('\x1b'), std::string::npos) << "colours are for terminals";
  EXPECT_EQ(shown("--validation").exit_code, 0);
  EXPECT_NE(shown("--sample 1").out, first.out);
  EXPECT_NE(shown("--sample 100000").err.find("--sample must be 0 to "), std::string::npos);
}

TEST(Data, bits_per_byte_are_those_of_the_text_with_any_tokenizer) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 20; ++i) text += fmt::format("It is {} o'clock \u2014 caf\u00e9.\n", i);
  folder.write("book.txt", text);
  const auto result = evaluation(fmt::format("{} --data {}/book.txt --tokenizer bytes --seq-length 64",
                                             test::golden_folder("open/gpt2"), folder.path().string()));
  EXPECT_EQ(result["text_bytes"], text.size() - 1);  // the first byte is predicted from nothing
  EXPECT_EQ(result["targets"], text.size());         // and the end of the document is
  EXPECT_NEAR(result["bits_per_byte"].get<double>(),
              result["loss"].get<double>() / std::log(2.0) * static_cast<double>(text.size()) /
                  static_cast<double>(text.size() - 1),
              1e-9);
  EXPECT_NEAR(result["perplexity"].get<double>(), std::exp(result["loss"].get<double>()), 1e-6);
}

TEST(Data, a_killed_tokenize_goes_on_to_the_same_bytes) {
  const TempFolder folder;
  std::string lines;
  for (int i = 0; i < 30000; ++i)
    lines += fmt::format("{{\"text\": \"number {} of many lines, all much alike\"}}\n", i);
  folder.write("lines.jsonl", lines);
  const auto command = [&](const std::string& out) {
    return fmt::format("{} tokenize {}/lines.jsonl --tokenizer {} --file-tokens 20000 --output {}/{}", kProgram,
                       folder.path().string(), kTokenizer, folder.path().string(), out);
  };
  ASSERT_EQ(run_program(command("whole")).exit_code, 0);
  run_program(command("killed"), "-s KILL 0.6");
  const Ended rest = run_program(command("killed"));
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  for (const auto& entry : fs::directory_iterator(folder / "whole"))
    EXPECT_EQ(test::read_bytes(entry.path()), test::read_bytes(folder / "killed" / entry.path().filename().string()))
        << entry.path();
}

TEST(Data, bad_input_ends_in_one_line) {
  const TempFolder folder;
  const std::string at = folder.path().string() + "/";
  folder.write("bad.jsonl", "{\"text\": \"a\"}\n{\"text\": 1}\n");
  folder.write("a.txt", "some text");
  const std::string bytes = " --tokenizer bytes --output " + at + "out ";
  expect_one_line("tokenize " + at + "bad.jsonl" + bytes, {"bad.jsonl:2:", "\"text\""});
  expect_one_line("tokenize " + at + "bad.jsonl --format chat --overwrite" + bytes, {"name one of chatml"});
  expect_one_line("tokenize " + at + "bad.jsonl --chat-template chatlm" + bytes, {"did you mean \"chatml\"?"});
  folder.write("chat.jsonl", R"({"prompt": "a", "completion": "b"})");
  expect_one_line("tokenize " + at + "chat.jsonl --chat-template chatml" + bytes,
                  {"<|im_start|>, <|im_end|>, which are no tokens", "--add-special-token"});
  folder.write("rows.parquet", "PAR1");
  expect_one_line("tokenize " + at + "rows.parquet" + bytes,
                  {"rows.parquet: cannot read the Parquet file: it is cut off"});
  folder.write("rows.arrow", "ARROW1");
  expect_one_line("tokenize " + at + "rows.arrow" + bytes, {"rows.arrow: Arrow files are not read", "to_parquet"});
  expect_one_line("tokenize " + at + "nothing*.txt" + bytes, {"nothing*.txt"});
  expect_one_line("tokenize " + at + "a.txt --format pdf" + bytes, {"text, jsonl or chat"});
  expect_one_line("tokenize " + at + "a.txt --threads 0" + bytes, {"--threads"});
  expect_one_line("tokenize " + at + "a.txt --tokenizer " + at + "none --output " + at + "out", {"neither"});
  expect_one_line("tokenize " + at + "a.txt --tokenizer bytes --output " + at + "a.txt", {"cannot create this folder"});
  const std::string model = test::golden_folder("open/gpt2");
  expect_one_line("eval " + model, {"no data to evaluate with"});
  expect_one_line("eval " + model + " --data " + at + "none.txt --ranks 2", {"none.txt"});
  expect_one_line("eval " + at + " --data " + at + "a.txt", {"config.json"});
  folder.write("x.tokens", "not tokens");
  expect_one_line("eval " + model + " --data " + at + "x.tokens", {"x.tokens: is no token file"});
}

}  // namespace
}  // namespace nought::data_test
