#include "nought/cli/init.h"

#include <filesystem>
#include <tuple>

#include "support/golden.h"
#include "support/known_paths.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/config/run_config.h"

namespace nought::init_test {
namespace {

namespace fs = std::filesystem;
using test::Ended;
using test::run_program;
using test::TempFolder;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Ended run_nought(const std::string& arguments) { return run_program(test::known_path("nought") + " " + arguments); }

InitAnswers answers_of(RunKind kind) {
  InitAnswers answers{.kind = kind, .model = "a \"quoted\" model", .data = {"a.txt", "b/**"}, .tokenizer = "bytes"};
  answers.seq_length = 128;
  answers.ranks = 2;
  return answers;
}

TEST(Init, every_kind_of_run_is_read_without_a_warning_and_has_its_batch) {
  for (const RunKind kind :
       {RunKind::quickstart, RunKind::pretrain, RunKind::continued, RunKind::finetune, RunKind::lora, RunKind::qlora}) {
    const Json json = parse_json(run_file_text(answers_of(kind)), "run.json");
    const RunConfig config = make_run_config(json, "run.json");
    const RunPlan plan = resolve(config, 2);
    EXPECT_THAT(plan.warnings, IsEmpty());
    EXPECT_EQ(plan.layout.train_batch(), kind == RunKind::quickstart ? 4 : 16);
    EXPECT_EQ(plan.layout.seq_length, 128);
    EXPECT_EQ(plan.adapts(), has_adapter(kind));
    EXPECT_EQ(plan.layout.freezing.codes.has_value(), kind == RunKind::qlora);
    EXPECT_EQ(plan.layout.zero_stage, 2);
    EXPECT_EQ(config.model.is_object(), has_random_weights(kind));
    if (!has_random_weights(kind)) {
      EXPECT_EQ(config.model, "a \"quoted\" model");
    }
    EXPECT_EQ(config.data.files, (std::vector<std::string>{"a.txt", "b/**"}));
  }
}

TEST(Init, passes_over_little_data_have_updates_enough_on_every_number_of_ranks) {
  for (const int64_t samples : {3, 17, 60, 900})
    for (const int64_t ranks : {1, 2, 4}) {
      InitAnswers answers = answers_of(RunKind::finetune);
      answers.samples = samples;
      answers.ranks = ranks;
      answers.validation_fraction = samples > ranks ? 1.0 / static_cast<double>(samples) : 0;
      const RunPlan plan =
          resolve(make_run_config(parse_json(run_file_text(answers), "run.json"), "run.json"), static_cast<int>(ranks));
      const int64_t trained = samples - (samples > ranks ? 1 : 0);
      EXPECT_LE(plan.layout.train_batch(), std::max(ranks, std::min<int64_t>(16, trained / 8)));
      EXPECT_EQ(plan.eval_strategy == EvalStrategy::epoch,
                samples > ranks && trained / plan.layout.train_batch() < 100);
      if (trained >= plan.layout.train_batch()) {
        EXPECT_GE(3 * trained / plan.layout.train_batch() / plan.logging_steps, 1);
      }
    }
}

/// With an adam_beta2 of 0.999 the large second moments of the first steps are forgotten too slowly: as the learning
/// rate rises, the loss jumps. So it does if the rate rises within 50 steps and the head is the embedding.
TEST(Init, pretraining_has_the_optimizer_of_the_quickstart_and_a_slower_start) {
  const Json run = parse_json(run_file_text(answers_of(RunKind::pretrain)), "run.json");
  const Json &written = run.at("training"),
             quickstart = read_json_file(test::known_path("examples") + "/quickstart.json").at("training");
  for (const char* key : {"adam_beta2", "weight_decay", "lr_scheduler_type"})
    EXPECT_EQ(written.value(key, Json()), quickstart.at(key)) << key;
  EXPECT_LE(written.at("learning_rate"), quickstart.at("learning_rate"));
  EXPECT_TRUE(!run.at("model").at("tie_word_embeddings").get<bool>() || written.at("warmup_steps") >= 100);
}

TEST(Init, paths_are_written_relative_to_the_file) {
  const TempFolder folder;
  const fs::path before = fs::current_path();
  folder.write("texts/a.txt", "");
  fs::create_directory(folder / "runs");
  fs::current_path(folder.path());
  const std::string beside = relative_to_run_file("texts/a.txt", "run.json");
  const std::string below = relative_to_run_file("texts/*.txt", "runs/run.json");
  const std::string name = relative_to_run_file("Org/Name", "runs/run.json");
  const std::string absolute = relative_to_run_file("/data/a.txt", "runs/run.json");
  fs::current_path(before);
  EXPECT_EQ(beside, "texts/a.txt");
  EXPECT_EQ(below, "../texts/*.txt");
  EXPECT_EQ(name, "Org/Name") << "it is not there: perhaps a model of a hub";
  EXPECT_EQ(absolute, "/data/a.txt");
}

TEST(Init, what_it_writes_passes_check_and_is_never_replaced_without_a_word) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 4000; ++i) text += "the quick brown fox jumps over the lazy dog\n";
  folder.write("text.txt", text);
  const std::string file = (folder / "runs/first.json").string();
  const std::string command =
      fmt::format("init pretrain {} --data {} --seq-length 32 --ranks 2", file, (folder / "text.txt").string());
  const Ended written = run_nought(command);
  ASSERT_EQ(written.exit_code, 0) << written.err;
  EXPECT_THAT(written.out, HasSubstr("next: nought check " + file + " --ranks 2"));
  const Ended checked =
      run_nought(fmt::format("check {} --ranks 2 --set training.output_dir={}", file, (folder / "out").string()));
  EXPECT_EQ(checked.exit_code, 0) << checked.err;
  EXPECT_THAT(checked.out, HasSubstr("parameters"));

  const std::string before = test::read_bytes(file);
  const Ended again = run_nought(command);
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_THAT(again.err, HasSubstr("is there already: --force replaces it"));
  EXPECT_EQ(test::read_bytes(file), before);
  EXPECT_EQ(run_nought(command + " --force").exit_code, 0);
}

TEST(Init, quickstart_finds_text_on_this_machine) {
  const TempFolder folder;
  const std::string file = (folder / "run.json").string();
  const Ended written = run_nought("init quickstart " + file);
  ASSERT_EQ(written.exit_code, 0) << written.err;
  EXPECT_THAT(test::read_bytes(file), HasSubstr(R"("files": ["/usr/)"));
  const Ended checked =
      run_nought(fmt::format("check {} --set training.output_dir={}", file, (folder / "out").string()));
  EXPECT_EQ(checked.exit_code, 0) << checked.err;
  EXPECT_THAT(checked.out, HasSubstr("tokens"));
}

TEST(Init, a_base_model_and_thirty_chats_lead_to_a_run_that_starts) {
  const TempFolder folder;
  ASSERT_EQ(run_nought(fmt::format("init pretrain {0}/pre.json --data {1}/README.md --output {0}/base --seq-length 64",
                                   folder.path().string(), test::golden_root()))
                .exit_code,
            0);
  ASSERT_EQ(run_nought(fmt::format("train {}/pre.json --max_steps 1 --set model.num_hidden_layers=1 --set "
                                   "model.hidden_size=64",
                                   folder.path().string()))
                .exit_code,
            0);
  std::string chats;
  for (int i = 0; i < 30; ++i)
    chats += fmt::format(R"({{"prompt": "What comes after {}?", "completion": "It is {}."}})", i, i + 1) + "\n";
  folder.write("chats.jsonl", chats);
  for (const int ranks : {1, 2}) {
    const std::string file = (folder / fmt::format("tune{}.json", ranks)).string();
    const Ended written = run_nought(
        fmt::format("init finetune {} --model {}/base --data {}/chats.jsonl --ranks {} --output {}/out{}", file,
                    folder.path().string(), folder.path().string(), ranks, folder.path().string(), ranks));
    ASSERT_EQ(written.exit_code, 0) << written.err;
    const std::string text = test::read_bytes(file);
    for (const char* key : {"\"chat_template\": \"chatml\",  // ", "\"add_special_tokens\": [\"<|im_start|>\"",
                            "\"resize_vocab\": true,  // ", "kept aside (1 of "})
      EXPECT_THAT(text, HasSubstr(key));
    const Ended trained = run_nought(fmt::format("train {} --ranks {} --max_steps 1", file, ranks));
    EXPECT_EQ(trained.exit_code, 0) << trained.err;
    EXPECT_THAT(trained.out, HasSubstr("validation loss"));
  }
  std::string sums;
  for (int i = 0; i < 8; ++i) sums += fmt::format(R"({{"prompt": "{0} + 1 =", "answer": {0}}})", i) + "\n";
  folder.write("sums.jsonl", sums);
  const std::string file = (folder / "grpo.json").string();
  const Ended written = run_nought(fmt::format("init grpo {1} --model {0}/base --data {0}/sums.jsonl --output {0}/grpo",
                                               folder.path().string(), file));
  ASSERT_EQ(written.exit_code, 0) << written.err;
  const Ended trained = run_nought(fmt::format("train {} --max_steps 1", file));
  EXPECT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_THAT(trained.out, HasSubstr("  reward 0."));
  const Ended judged = run_nought(fmt::format("eval {}/base {}", folder.path().string(), file));
  EXPECT_THAT(judged.out, HasSubstr("rewards/exact_match/mean 0.")) << judged.err;
  std::string answers;
  for (int i = 0; i < 20; ++i) answers += fmt::format(R"({{"prompt": "{} +", "completion": "{}"}})", i, i) + "\n";
  folder.write("answers.jsonl", answers);
  for (const auto& [kind, data, more] : {std::tuple{"rloo", "sums.jsonl", ""}, std::tuple{"ppo", "sums.jsonl", ""},
                                         std::tuple{"gkd", "answers.jsonl", " --teacher {0}/base"}}) {
    const std::string options = fmt::format(fmt::runtime(more), folder.path().string());
    const Ended init =
        run_nought(fmt::format("init {1} {0}/{1}.json --model {0}/base --data {0}/{2} --output {0}/{1}{3}",
                               folder.path().string(), kind, data, options));
    ASSERT_EQ(init.exit_code, 0) << init.err;
    const Ended run = run_nought(fmt::format("train {}/{}.json --max_steps 1", folder.path().string(), kind));
    EXPECT_EQ(run.exit_code, 0) << run.err;
  }
}

TEST(Init, what_is_not_there_or_no_data_is_refused_before_a_file_is_written) {
  const TempFolder folder;
  const std::string file = (folder / "run.json").string();
  folder.write("a.txt", std::string(5000, 'x')), folder.write("b.pdf", "%PDF-1.7");
  const auto refusal = [&](const std::string& options) { return run_nought("init " + options).err; };
  const std::string data = " --data " + (folder / "a.txt").string(), model = test::golden_folder("open/llama");
  EXPECT_THAT(refusal("continue " + file + " --model /nowhere" + data), HasSubstr("/nowhere: expected a Hugging Face"));
  EXPECT_THAT(refusal("continue " + file + " --model " + model + " --data " + (folder / "no.txt").string()),
              HasSubstr("no.txt: no such file"));
  EXPECT_THAT(refusal("pretrain " + file + " --data " + (folder / "b.pdf").string()), HasSubstr("PDF document"));
  EXPECT_THAT(refusal("pretrain --output " + file + data), HasSubstr("nought init pretrain " + file)) << "a folder";
  EXPECT_FALSE(fs::exists(file));
}

TEST(Init, without_a_terminal_what_is_missing_is_named) {
  const TempFolder folder;
  const std::string file = (folder / "run.json").string();
  EXPECT_THAT(run_nought("init").err, HasSubstr("KIND is missing"));
  EXPECT_THAT(run_nought("init finetune " + file + " --data x").err, HasSubstr("--model is missing"));
  EXPECT_THAT(run_nought("init finetun " + file).err, HasSubstr("did you mean \"finetune\"?"));
  EXPECT_FALSE(fs::exists(file));
}

}  // namespace
}  // namespace nought::init_test
