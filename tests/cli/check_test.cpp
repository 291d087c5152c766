// nought check refuses what nought train refuses, in the same line, and prints what is unusual about a run.
#include "support/golden.h"
#include "support/known_paths.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace nought::check_test {
namespace {

namespace fs = std::filesystem;
using test::Ended;
using test::run_program;
using test::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kTokenizer = test::golden_root() + "/tokenizer/r50k_base.tokenizer.json";

/// A small run, and the files that the mistakes below name.
class Check : public ::testing::Test {
 protected:
  Check() {
    std::string text, lines;
    for (int i = 0; i < 300; ++i)
      text += fmt::format("for (int i = {}; i < {}; ++i) sum += table[i];\n", i % 7, i % 31);
    for (int i = 1; i < 8000; ++i)  // train opens so much and reads it later
      lines += i == 7000 ? "{\"text\": 5}\n" : fmt::format("{{\"text\": \"{:>200}\"}}\n", i);
    folder_.write("text.txt", text);
    folder_.write("late.jsonl", lines);
    folder_.write("broken.jsonl", "{\"text\": \"a\"\n");
    folder_.write("field.jsonl", "{\"content\": \"a\"}\n");
    folder_.write("turns.jsonl", R"({"messages": [{"role": "wizard", "content": "a"}]})");
    folder_.write("binary.txt", std::string("a\0b", 3));
    folder_.write("short.txt", "few");
    folder_.write("other.tokens", "no tokens");
    folder_.write("a_file", "x");
    folder_.write("run.json",
                  nlohmann::json{{"model",
                                  {{"model_type", "llama"},
                                   {"vocab_size", 256},
                                   {"hidden_size", 32},
                                   {"intermediate_size", 48},
                                   {"num_hidden_layers", 1},
                                   {"num_attention_heads", 2},
                                   {"max_position_embeddings", 64}}},
                                 {"data", {{"files", {at("text.txt")}}, {"tokenizer", "bytes"}, {"seq_length", 32}}},
                                 {"training",
                                  {{"max_steps", 2},
                                   {"per_device_train_batch_size", 2},
                                   {"learning_rate", 1e-3},
                                   {"output_dir", at("out")}}}}
                      .dump());
  }
  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  std::string files(const std::string& name) const { return fmt::format("--set 'data.files=[\"{}\"]'", at(name)); }
  Ended run(const std::string& command, const std::string& options) const {
    return run_program(fmt::format("{} {} {} {}", test::known_path("nought"), command, at("run.json"), options));
  }

  TempFolder folder_;
};

TEST_F(Check, refuses_what_train_refuses_in_the_same_line) {
  const std::vector<std::pair<std::string, const char*>> mistakes{
      {"--set model=" + at("nowhere"), "expected a Hugging Face folder"},
      {"--set model.num_attention_heads=5", "heads"},
      {files("*.md"), "no file matches"},
      {files("none.txt"), "no such file"},
      {files("broken.jsonl"), "broken.jsonl:1: column"},
      {files("field.jsonl"), "has no field \"text\""},
      {files("late.jsonl"), "late.jsonl:7000: the field \"text\""},
      {files("turns.jsonl"), "name one of chatml"},
      {files("turns.jsonl") + " --set data.chat_template=zephyr", "the role \"wizard\""},
      {files("binary.txt"), "this is a binary file"},
      {files("short.txt"), "one batch needs 2 samples"},
      {files("other.tokens"), "is no token file"},
      {"--set data.validation_fraction=0.0001", "is less than one"},
      {fmt::format("--set 'data.validation_files=[\"{}\"]'", at("none.txt")), "none.txt"},
      {"--set data.tokenizer=" + at("none"), "is neither \"bytes\" nor a file or folder"},
      {"--set data.tokenizer=" + kTokenizer, "needs at least"},
      {"--set 'model={\"model_type\": \"gpt2\", \"n_embd\": 32, \"n_layer\": 1, \"n_head\": 2, \"n_positions\": 16, "
       "\"vocab_size\": 256}'",
       "exceeds the 16 positions"},
      {"--set 'training.freeze=[\"lm_haed\"]'", "matches no parameter"},
      {"--set training.output_dir=" + at("a_file"), "a_file"},
      {"--resume", "nothing to resume"},
      {"--set training.device_memory=100KiB", "are more than training.device_memory, 100.0 KiB"},
      {"--set training.host_memory=100KiB", "in the host's RAM, as predicted, are more than training.host_memory"},
      {"--resume --overwrite", "give one of them"},
      {"--rewind 3", "not of step 3"},
      {"--set training.learnig_rate=1", "did you mean"},
  };
  for (const auto& [options, words] : mistakes) {
    const Ended check = run("check", options), train = run("train", options);
    EXPECT_EQ(check.err, train.err) << options;
    EXPECT_THAT(check.err, HasSubstr(words)) << options;
    EXPECT_EQ(check.exit_code, train.exit_code) << options;
    EXPECT_NE(check.exit_code, 0) << options;
  }
}

TEST_F(Check, writes_nothing_and_tells_the_data_and_the_memory) {
  const Ended check = run("check", "");
  EXPECT_EQ(check.exit_code, 0) << check.err;
  EXPECT_FALSE(fs::exists(at("out")));
  EXPECT_THAT(check.out, AllOf(HasSubstr("data: 1 file, "), HasSubstr("tokens (tokenizer bytes), "),
                               HasSubstr(" per rank at the peak"), Not(HasSubstr("note:"))));
  const Ended tight = run("check", "--set training.device_memory=100KiB --set training.per_device_train_batch_size=8");
  EXPECT_EQ(tight.exit_code, 1);
  EXPECT_THAT(tight.out, HasSubstr(" per rank at the peak"));
  EXPECT_THAT(tight.err, HasSubstr("as predicted, are more than training.device_memory, 100.0 KiB"));
}

TEST_F(Check, proves_what_a_run_of_several_ranks_would_do) {
  const Ended proof = run("check", "--ranks 2 --prove");
  EXPECT_EQ(proof.exit_code, 0) << proof.err;
  EXPECT_THAT(proof.out, AllOf(HasSubstr("proof: 6 of 6 properties hold for 2 ranks"), HasSubstr("calls: holds"),
                               HasSubstr("machine: holds")));
  const Ended tight = run("check", "--ranks 2 --prove --json --set training.device_memory=100KiB");
  EXPECT_EQ(tight.exit_code, 1);
  const auto json = nlohmann::json::parse(tight.out);
  EXPECT_EQ(json["format"], "nought-proof-1");
  EXPECT_FALSE(json["holds"].get<bool>());
  EXPECT_THAT(tight.err, HasSubstr("the run would not go well: memory: rank 0 has"));
  EXPECT_THAT(run("check", "--json").err, HasSubstr("--json is for --prove"));
}

TEST_F(Check, a_run_that_would_not_go_well_does_not_start) {
  const Ended train = run("train", "--ranks 2 --set training.max_steps=900000000000 --set training.save_steps=1");
  EXPECT_EQ(train.exit_code, 1);
  EXPECT_THAT(train.err, HasSubstr("the run would not go well: machine: 900000000000 checkpoints of "));
  EXPECT_THAT(train.err, HasSubstr("set training.save_total_limit"));
  EXPECT_FALSE(fs::exists(at("out") + "/metrics.jsonl"));
}

TEST_F(Check, a_proof_of_a_resume_looks_at_the_checkpoint) {
  const Ended train = run("train", "");
  ASSERT_EQ(train.exit_code, 0) << train.err;
  const Ended proof = run("check", "--ranks 2 --prove --resume");
  EXPECT_EQ(proof.exit_code, 0) << proof.err;
  EXPECT_THAT(proof.out, HasSubstr("states of " + at("out") + "/checkpoint-2"));
  const Ended other = run("check", "--prove --resume --set training.optim=lion_32bit");
  EXPECT_EQ(other.exit_code, 0) << other.err;  // it reads fewer states
}

TEST_F(Check, flags_may_stand_before_the_file) {
  for (const char* flags : {"--set training.max_steps=1", "--max_steps 1", "--bf16", "--gradient_checkpointing null"}) {
    const Ended ended = run_program(fmt::format("{} check {} {}", test::known_path("nought"), flags, at("run.json")));
    EXPECT_EQ(ended.exit_code, 0) << flags << ": " << ended.err;
  }
}

TEST_F(Check, what_is_unusual_is_one_note_each_and_train_says_the_same) {
  const std::string unusual =
      "--set model.vocab_size=300 --set data.tokenizer=null --set data.seq_length=128 --set training.max_steps=1";
  const Ended check = run("check", unusual), train = run("train", unusual);
  EXPECT_EQ(check.exit_code, 0) << check.err;
  EXPECT_EQ(train.exit_code, 0) << train.err;
  for (const char* note : {"every byte is a token", "the model has 300 tokens and the tokenizer \"bytes\" 256",
                           "128 is beyond the 64 positions"}) {
    EXPECT_THAT(check.out, HasSubstr(note));
    EXPECT_THAT(train.out, HasSubstr(note));
  }
}

TEST_F(Check, a_folder_has_its_own_length_for_check_plan_and_train) {
  const std::string of_folder = fmt::format(
      "--set model={} --set data.tokenizer=bytes --set data.seq_length=null --set training.max_steps=1 "
      "--set training.per_device_train_batch_size=1",
      test::golden_folder("open/gpt2"));
  const Ended check = run("check", of_folder), plan = run("plan", of_folder + " --json"),
              train = run("train", of_folder);
  EXPECT_EQ(check.exit_code, 0) << check.err;
  EXPECT_EQ(train.exit_code, 0) << train.err;
  const int64_t length = nlohmann::json::parse(plan.out).at("seq_length");
  EXPECT_THAT(check.out, AllOf(HasSubstr("the model's number of positions"),
                               HasSubstr(fmt::format("samples of {} tokens", length))));
  EXPECT_THAT(train.out, HasSubstr(fmt::format("; {} tokens per step", length)));
}

TEST_F(Check, an_evaluation_with_another_tokenizer_says_so) {
  const std::string model = at("model");
  fs::copy(test::golden_folder("open/llama"), model);
  fs::copy_file(kTokenizer, model + "/tokenizer.json");
  const Ended ended = run_program(fmt::format("{} eval {} --data {} --tokenizer bytes --seq-length 32",
                                              test::known_path("nought"), model, at("text.txt")));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("note: \"bytes\" is another tokenizer than that of " + model));
}

TEST_F(Check, a_resumed_run_names_the_files_that_have_changed) {
  ASSERT_EQ(run("train", "").exit_code, 0);
  const std::string json = test::read_bytes(folder_ / "run.json");
  folder_.write("run.json", "// longer\n" + json);
  const Ended resumed = run("train", "--resume --set training.max_steps=3");
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("note: changed since the checkpoint: " + at("run.json")));
}

}  // namespace
}  // namespace nought::check_test
