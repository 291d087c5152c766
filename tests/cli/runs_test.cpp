// Whole runs as a user makes them: processes started by the program itself, equal results at every layout, and bad
// input that ends in one line.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "support/golden.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/io/safetensors_writer.h"
#include "nought/kernels/kernels.h"

namespace nought {
namespace {

namespace fs = std::filesystem;
using test::Ended;
using test::run_program;
using test::TempFolder;

const std::string kProgram = NOUGHT_PROGRAM;

/// A small run over a text of its own, in `folder`.
void write_run(const TempFolder& folder) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += fmt::format("for (int i = {}; i < {}; ++i) sum += table[i];\n", i % 7, i % 31);
  folder.write("text.txt", text);
  folder.write("run.json",
               nlohmann::json{
                   {"model",
                    {{"model_type", "llama"},
                     {"vocab_size", 256},
                     {"hidden_size", 48},
                     {"intermediate_size", 64},
                     {"num_hidden_layers", 2},
                     {"num_attention_heads", 4},
                     {"num_key_value_heads", 2},
                     {"max_position_embeddings", 64}}},
                   {"data", {{"files", {(folder / "text.txt").string()}}, {"tokenizer", "bytes"}, {"seq_length", 32}}},
                   {"training",
                    {{"max_steps", 6},
                     {"per_device_train_batch_size", 2},
                     {"learning_rate", 3e-3},
                     {"seed", 1},
                     {"logging_steps", 1},
                     {"save_steps", 4},
                     {"output_dir", (folder / "out").string()}}},
                   {"deepspeed", {{"zero_optimization", {{"stage", 2}}}}}}
                   .dump());
}

std::string train_command(const TempFolder& folder, const std::string& more) {
  return fmt::format("{} train {} {}", kProgram, (folder / "run.json").string(), more);
}

std::vector<nlohmann::json> metrics_of(const TempFolder& folder) {
  std::vector<nlohmann::json> lines;
  std::ifstream file(folder / "out/metrics.jsonl");
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

std::vector<double> losses_of(const TempFolder& folder) {
  std::vector<double> losses;
  for (const nlohmann::json& line : metrics_of(folder)) losses.push_back(line.at("loss"));
  return losses;
}

/// The first word of every line.
std::set<std::string> first_words_of(const std::string& text) {
  std::set<std::string> words;
  std::istringstream lines(text);
  for (std::string line, word; std::getline(lines, line);)
    if (std::istringstream(line) >> word) words.insert(word);
  return words;
}

TEST(Runs, processes_agree_bit_for_bit_at_every_stage) {
  TempFolder folder;
  write_run(folder);
  std::vector<double> first;
  for (const int stage : {0, 1, 2, 3}) {
    const Ended run = run_program(
        train_command(folder, fmt::format("--ranks 2 --overwrite --set deepspeed.zero_optimization.stage={}", stage)));
    ASSERT_EQ(run.exit_code, 0) << run.err;
    const std::vector<double> losses = losses_of(folder);
    ASSERT_EQ(losses.size(), 6u);
    if (stage == 0) first = losses;
    EXPECT_EQ(losses, first) << "stage " << stage;
  }
}

TEST(Runs, frozen_parameters_are_told_and_a_resumed_run_keeps_them) {
  TempFolder folder;
  write_run(folder);
  const std::string head_only = " --set 'training.freeze=[\".\"]' --set 'training.trainable=[\"lm_head\"]'";
  const Ended check = run_program(fmt::format("{} check {}{}", kProgram, (folder / "run.json").string(), head_only));
  ASSERT_EQ(check.exit_code, 0) << check.err;
  EXPECT_NE(check.out.find(", 12.3K of them trained"), std::string::npos) << check.out;
  EXPECT_TRUE(first_words_of(check.out).contains("freeze")) << check.out;
  const Ended run = run_program(train_command(folder, "--ranks 2" + head_only));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.out.find("12.3K of them trained"), std::string::npos) << run.out;
  const std::vector<double> losses = losses_of(folder);
  EXPECT_LT(losses.back(), losses.front());

  const Ended other = run_program(train_command(folder, "--ranks 2 --resume --set training.max_steps=8"));
  EXPECT_NE(other.exit_code, 0);
  EXPECT_EQ(other.error_lines(), 1) << other.err;
  EXPECT_NE(other.err.find("was frozen and is trained now"), std::string::npos) << other.err;
  const Ended resumed = run_program(train_command(
      folder, "--ranks 1 --resume --set training.max_steps=8 --set deepspeed.zero_optimization.stage=3" + head_only));
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  const Ended misspelt = run_program(train_command(folder, "--overwrite --set 'training.freeze=[\"lm_haed\"]'"));
  EXPECT_EQ(misspelt.error_lines(), 1) << misspelt.err;
  EXPECT_NE(misspelt.err.find("\"lm_haed\" matches no parameter; the nearest is lm_head.weight"), std::string::npos)
      << misspelt.err;
}

TEST(Runs, a_run_within_a_time_chooses_its_steps_before_it_and_the_same_number_gives_the_same_run) {
  TempFolder folder;
  write_run(folder);
  const Ended chosen = run_program(train_command(folder, "--ranks 2 --within 0.000001s --min-steps 4"));
  ASSERT_EQ(chosen.exit_code, 0) << chosen.err;
  EXPECT_NE(chosen.out.find("note: 4 of 6 steps, the fewest allowed"), std::string::npos) << chosen.out;
  EXPECT_NE(chosen.out.find("--set training.max_steps=4 makes the same run again"), std::string::npos) << chosen.out;
  const std::vector<double> losses = losses_of(folder);
  ASSERT_EQ(losses.size(), 4u);
  ASSERT_EQ(run_program(train_command(folder, "--ranks 2 --overwrite --set training.max_steps=4")).exit_code, 0);
  EXPECT_EQ(losses_of(folder), losses) << "its learning rates included";
  ASSERT_EQ(run_program(train_command(folder, "--overwrite --within 1h")).exit_code, 0);
  EXPECT_EQ(losses_of(folder).size(), 6u);

  for (const char* refused : {"--resume --within 1m", "--within 1m --min-steps 7 --overwrite", "--within soon",
                              "--within 1m --overwrite --set training.max_steps=-1", "--min-steps 3 --overwrite"}) {
    const Ended run = run_program(train_command(folder, refused));
    EXPECT_NE(run.exit_code, 0) << refused;
    EXPECT_EQ(run.error_lines(), 1) << run.err;
  }
}

TEST(Runs, metrics_have_every_field_of_every_step) {
  TempFolder folder;
  write_run(folder);
  ASSERT_EQ(run_program(train_command(folder, "")).exit_code, 0);
  const auto lines = metrics_of(folder);
  ASSERT_EQ(lines.size(), 6u);
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i].at("step"), i + 1);
    for (const char* field : {"loss", "grad_norm", "lr", "tokens_per_second", "mfu", "bytes_sent"})
      EXPECT_TRUE(lines[i].at(field).is_number()) << field;
  }
}

TEST(Runs, a_step_is_broken_down_and_traced_where_that_is_asked_for) {
  TempFolder folder;
  write_run(folder);
  const std::string trace = (folder / "trace.json").string();
  const Ended run = run_program(train_command(
      folder, fmt::format("--ranks 2 --trace {} --set deepspeed.zero_optimization.stage=3 --set "
                          "deepspeed.wall_clock_breakdown=true --set deepspeed.comms_logger.enabled=true --set "
                          "deepspeed.comms_logger.verbose=true",
                          trace)));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const std::set<std::string> rows = first_words_of(run.out);
  EXPECT_TRUE(rows.contains("all_gather") && rows.contains("reduce_scatter")) << run.out;
  EXPECT_TRUE(rows.contains("comm")) << "each collective of a step: " << run.out;
  EXPECT_FALSE(rows.contains("gather")) << "writing the trace is no part of a step: " << run.out;
  for (const nlohmann::json& line : metrics_of(folder)) {
    const double parts = line.at("forward_seconds").get<double>() + line.at("backward_seconds").get<double>() +
                         line.at("optimizer_seconds").get<double>();
    EXPECT_LE(parts, line.at("seconds").get<double>());
    EXPECT_GT(line.at("communication_seconds").get<double>(), 0);
    const double hidden = line.at("communication_hidden");
    EXPECT_TRUE(0 <= hidden && hidden <= 1) << hidden;
  }
  EXPECT_TRUE(nlohmann::json::parse(std::ifstream(trace)).at("traceEvents").is_array());
}

TEST(Runs, a_step_is_profiled_where_that_is_asked_for_and_no_bit_changes) {
  TempFolder folder;
  write_run(folder);
  ASSERT_EQ(run_program(train_command(folder, "--ranks 2")).exit_code, 0);
  const std::vector<double> losses = losses_of(folder);
  const std::string profiler = "deepspeed.flops_profiler.", file = (folder / "more/profile.txt").string();
  const Ended printed = run_program(train_command(
      folder, fmt::format("--ranks 2 --overwrite --set {0}enabled=true --set {0}profile_step=4", profiler)));
  ASSERT_EQ(printed.exit_code, 0) << printed.err;
  EXPECT_EQ(losses_of(folder), losses);
  // What the text says is observe/profile_test's.
  const std::string title = "profile of step 4";
  EXPECT_NE(printed.out.find(title), std::string::npos) << printed.out;
  const Ended written = run_program(train_command(
      folder,
      fmt::format("--ranks 2 --overwrite --set {0}enabled=true --set {0}profile_step=4 --set {0}output_file={1}",
                  profiler, file)));
  ASSERT_EQ(written.exit_code, 0) << written.err;
  EXPECT_NE(written.out.find(file), std::string::npos) << written.out;
  EXPECT_TRUE(test::read_bytes(file).starts_with(title)) << test::read_bytes(file);
  const Ended folder_named =
      run_program(train_command(folder, fmt::format("--overwrite --set {}enabled=true --set {}output_file={}", profiler,
                                                    profiler, folder.path().string())));
  EXPECT_EQ(folder_named.exit_code, 1);
  EXPECT_EQ(folder_named.error_lines(), 1) << folder_named.err;
  EXPECT_NE(folder_named.err.find(folder.path().string()), std::string::npos) << folder_named.err;
  const Ended late = run_program(
      train_command(folder, fmt::format("--overwrite --set {0}enabled=true --set {0}profile_step=40", profiler)));
  EXPECT_EQ(late.exit_code, 0) << late.err;
  EXPECT_EQ(late.out.find(title), std::string::npos);
  EXPECT_NE(late.out.find("profile_step is 40"), std::string::npos) << "the reason is said: " << late.out;
}

TEST(Runs, a_run_prints_its_resolved_values_and_the_memory_of_its_phases_where_that_is_asked_for) {
  TempFolder folder;
  write_run(folder);
  const Ended run = run_program(train_command(folder,
                                              "--ranks 2 --set deepspeed.dump_state=true --set "
                                              "deepspeed.memory_breakdown=true"));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const std::set<std::string> rows = first_words_of(run.out);
  for (const char* value : {"world_size", "micro_batch", "learning_rate", "zero_stage"})
    EXPECT_TRUE(rows.contains(value)) << value << " in " << run.out;
  for (const nlohmann::json& line : metrics_of(folder)) {
    // The forward pass leaves activations, which the backward pass uses up.
    EXPECT_GT(line.at("forward_bytes").get<int64_t>(), line.at("backward_bytes").get<int64_t>());
    EXPECT_GT(line.at("update_bytes").get<int64_t>(), 0);
  }
}

TEST(Runs, a_checkpoint_converts_to_what_the_run_exports) {
  TempFolder folder;
  write_run(folder);
  ASSERT_EQ(run_program(train_command(folder, "--ranks 2 --set training.max_shard_size=30KB")).exit_code, 0);
  EXPECT_TRUE(fs::exists(folder / "out/model.safetensors.index.json"));
  const Ended converted = run_program(fmt::format("{} convert {} {} --max-shard-size 30KB", kProgram,
                                                  (folder / "out/checkpoint-6").string(), (folder / "x").string()));
  ASSERT_EQ(converted.exit_code, 0) << converted.err;
  EXPECT_NE(converted.out.find("x: a Hugging Face folder with safetensors: "), std::string::npos) << converted.out;
  for (const auto& file : fs::directory_iterator(folder / "x"))
    EXPECT_EQ(test::read_bytes(file.path()), test::read_bytes(folder / "out" / file.path().filename().string()));
  EXPECT_EQ(run_program(fmt::format("{} generate {} --ids 1,2 --max-new-tokens 3", kProgram, (folder / "x").string()))
                .exit_code,
            0);
  const auto convert = [&](const std::string& to) {
    return run_program(fmt::format("{} convert {} {}", kProgram, (folder / "out").string(), (folder / to).string()));
  };
  const Ended again = convert("x"), gguf = convert("x.gguf"), twice = convert("x.gguf");
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_NE(again.err.find("x: holds files already: --force writes over it"), std::string::npos) << again.err;
  EXPECT_EQ(again.out, "") << "nothing is said before the refusal";
  EXPECT_EQ(convert("x --force").exit_code, 0);
  EXPECT_EQ(gguf.exit_code, 0) << gguf.err;
  EXPECT_NE(gguf.out.find("x.gguf: a GGUF file with matrices in f16: "), std::string::npos) << gguf.out;
  EXPECT_NE(twice.err.find("x.gguf: is there already: --force writes over it"), std::string::npos) << twice.err;
  const Ended wrong = run_program(fmt::format("{0} convert {1} {1} --dtype bf17", kProgram, (folder / "x").string()));
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_EQ(wrong.error_lines(), 1) << wrong.err;
}

TEST(Runs, an_interrupted_run_resumes_bit_for_bit_at_another_stage) {
  TempFolder folder;
  write_run(folder);
  ASSERT_EQ(run_program(train_command(folder, "--ranks 2")).exit_code, 0);
  const std::vector<double> whole = losses_of(folder);
  fs::remove_all(folder / "out/checkpoint-6");  // as if it had died after step 4
  const Ended resumed =
      run_program(train_command(folder, "--ranks 2 --resume --set deepspeed.zero_optimization.stage=3"));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(losses_of(folder), whole);
}

TEST(Runs, fp16_skips_what_overflows_says_so_and_resumes_bit_for_bit) {
  TempFolder folder;
  write_run(folder);
  const std::string fp16 =
      "--ranks 2 --set training.fp16=true --set deepspeed.fp16.initial_scale_power=20 --set "
      "deepspeed.fp16.hysteresis=1 --set training.max_steps=10 --set training.save_steps=6";
  const Ended run = run_program(train_command(folder, fp16));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.out.find("OVERFLOW at loss scale 1.04858e+06: the update is skipped (1 so far), the scale is "),
            std::string::npos)
      << run.out;
  const auto scales_of = [&] {
    std::vector<std::pair<double, bool>> scales;
    for (const nlohmann::json& line : metrics_of(folder))
      scales.emplace_back(line.at("loss_scale"), line.at("skipped"));
    return scales;
  };
  const auto scales = scales_of();
  ASSERT_EQ(scales.size(), 10u);
  EXPECT_EQ(scales.front(), std::pair(1048576.0, true));
  EXPECT_EQ(scales[1].first, 524288.0);
  // Steps of both kinds lie before the checkpoint that is resumed, and updates behind it.
  EXPECT_TRUE(!scales[5].second && !scales[9].second) << "all steps overflow, so the test says little";
  const std::vector<double> losses = losses_of(folder);
  EXPECT_LT(losses.back(), losses.front());
  ASSERT_TRUE(fs::exists(folder / "out/checkpoint-6"));
  fs::remove_all(folder / "out/checkpoint-10");
  const Ended resumed = run_program(train_command(folder, fp16 + " --resume"));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  ASSERT_TRUE(fs::exists(folder / "out/checkpoint-10")) << "the resumed run made no step";
  EXPECT_EQ(losses_of(folder), losses);
  EXPECT_EQ(scales_of(), scales);
}

/// The --set options that a line "would fit: A and B, which takes ..." asks for.
std::string options_of(const std::string& advice) {
  std::string options, part;
  std::istringstream words(advice);
  for (std::string word; words >> word;) {
    std::string value;
    if (word == "zero_optimization.stage" && words >> value)
      options += " --set deepspeed.zero_optimization.stage=" + value;
    else if (word == "training.recompute" && words >> value)
      options += " --set training.recompute=" + value;
    else if (word == "micro-batch" && words >> value)
      options += " --set training.per_device_train_batch_size=" + value;
    else if (word == "accumulation" && words >> value)
      options += " --set training.gradient_accumulation_steps=" + value;
  }
  return options;
}

TEST(Runs, a_budget_that_is_too_small_ends_every_rank_with_what_would_fit_and_that_runs) {
  for (const int ranks : {1, 2, 4}) {
    TempFolder folder;
    write_run(folder);
    const std::string base = fmt::format(
        "--ranks {} --overwrite --set deepspeed.zero_optimization.stage=0 --set training.max_steps=2 --set "
        "training.per_device_train_batch_size=8 --set training.device_memory=",
        ranks);
    // Just below what the run takes.
    const Ended free = run_program(train_command(folder, base + "1GiB"));
    ASSERT_EQ(free.exit_code, 0) << free.err;
    const Ended plan =
        run_program(fmt::format("{} plan {} --json {}", kProgram, (folder / "run.json").string(),
                                base.substr(0, base.rfind(" --set")).replace(base.find(" --overwrite"), 12, "")));
    ASSERT_EQ(plan.exit_code, 0) << plan.err;
    const int64_t peak = nlohmann::json::parse(plan.out)["stages"][0]["peak"]["total"];
    const std::string tight = base + std::to_string(peak - 1024) + "B";
    const Ended refused = run_program(train_command(folder, tight));
    EXPECT_NE(refused.exit_code, 0);
    const std::string proposal = "would fit: ";
    const size_t begin = refused.err.find(proposal), end = refused.err.find(", which", begin);
    ASSERT_NE(end, std::string::npos) << refused.err;
    const std::string mark = "nought: error: ";
    EXPECT_EQ(refused.err.find(mark), refused.err.rfind(mark)) << "said once, not by every rank: " << refused.err;
    const std::string change = options_of(refused.err.substr(begin, end - begin));
    ASSERT_FALSE(change.empty()) << refused.err;
    const Ended fits = run_program(train_command(folder, tight + change));
    EXPECT_EQ(fits.exit_code, 0) << change << "\n" << fits.err;
  }
}

TEST(Runs, a_trained_model_generates_and_the_same_seed_gives_the_same_text) {
  TempFolder folder;
  write_run(folder);
  ASSERT_EQ(run_program(train_command(folder, "")).exit_code, 0);
  const std::string command =
      fmt::format("{} generate {} --prompt 'for (' --max-new-tokens 20 --seed 3", kProgram, (folder / "out").string());
  const Ended once = run_program(command), again = run_program(command);
  EXPECT_EQ(once.exit_code, 0) << once.err;
  EXPECT_EQ(once.out.substr(0, 5), "for (");
  EXPECT_EQ(once.out, again.out);
}

TEST(Runs, a_model_keeps_the_tokenizer_that_it_was_trained_with) {
  TempFolder folder;
  write_run(folder);
  fs::create_directories(folder / "words");
  fs::copy_file(fs::path(NOUGHT_GOLDEN_DIR) / "tokenizer/r50k_base.tokenizer.json", folder / "words/tokenizer.json");
  const std::string small = "--set model.vocab_size=50304 --set training.max_steps=2 --set data.seq_length=8 ";
  const Ended first = run_program(train_command(folder, small + "--set data.tokenizer=" + (folder / "words").string()));
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_TRUE(fs::exists(folder / "out/tokenizer.json"));

  const std::string generate = fmt::format("{} generate {} --prompt 'for (int' --max-new-tokens 3 --temperature 0",
                                           kProgram, (folder / "out").string());
  const Ended text = run_program(generate), ids = run_program(generate + " --tokenizer bytes");
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_EQ(text.out.substr(0, 8), "for (int");
  EXPECT_NE(ids.exit_code, 0) << "tokens beyond 255 are no bytes";

  // From that folder on nothing needs to be said of the tokenizer.
  fs::rename(folder / "out", folder / "model");
  const std::string from =
      fmt::format("--set model={} --set data.seq_length=8 --set training.max_steps=2", (folder / "model").string());
  nlohmann::json run = nlohmann::json::parse(std::ifstream(folder / "run.json"));
  run["data"].erase("tokenizer");
  folder.write("run.json", run.dump());
  const Ended again = run_program(train_command(folder, from));
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_TRUE(fs::exists(folder / "out/tokenizer.json"));
}

/// The golden batch of a family, as the program computes it with these arguments.
void expect_golden_probe(const std::string& family, const std::string& arguments) {
  TempFolder folder;
  const std::string model = test::golden_folder(family), out = (folder / "out.safetensors").string();
  const Ended run = run_program(fmt::format("{} probe {} --input {}/golden.safetensors --output {} --grads {}",
                                            kProgram, model, model, out, arguments));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Context context = Context::reference();
  const SafetensorsFile actual(out), expected(model + "/golden.safetensors");
  EXPECT_EQ(actual.entries().size() + 2, expected.entries().size());
  for (const TensorEntry& entry : actual.entries()) {
    const Tensor have = actual.load(entry.name, *context.memory), want = expected.load(entry.name, *context.memory);
    EXPECT_EQ(have.shape(), want.shape()) << entry.name;
    if (entry.name == "logits") {
      EXPECT_LE(test::difference(have, want).max_abs, 5e-5);
    } else if (entry.name == "loss") {
      EXPECT_NEAR(have.item(), want.item(), 5e-6);
    } else {
      test::expect_gradient_close(entry.name, have, want, 5e-5);
    }
  }
}

TEST(Runs, probe_agrees_with_the_golden_data_over_processes) {
  expect_golden_probe("open/gpt2", "--ranks 2 --set deepspeed.zero_optimization.stage=3");
}

TEST(Runs, probe_agrees_with_the_golden_data_over_pipeline_stages) {
  const std::string pipeline =
      "--set deepspeed.train_micro_batch_size_per_gpu=1 --set deepspeed.gradient_accumulation_steps=2 "
      "--set training.parallelism_config.pp_size={} --ranks {} "
      "--set training.parallelism_config.pipeline_parallel_schedule={}";
  expect_golden_probe("open/qwen3", fmt::format(fmt::runtime(pipeline), 4, 4, "ZBH1"));
  expect_golden_probe("open/mixtral", fmt::format(fmt::runtime(pipeline), 2, 2, "ZBVZeroBubble"));
}

/// The command fails with one line on stderr that contains every one of the words.
void expect_one_line(const std::string& command, const std::vector<std::string>& words) {
  const Ended run = run_program(command);
  EXPECT_NE(run.exit_code, 0) << command;
  EXPECT_NE(run.exit_code, 124) << command << " hangs";
  EXPECT_LT(run.exit_code, 128) << command << " dies of a signal";
  EXPECT_EQ(run.error_lines(), 1) << run.err;
  for (const std::string& word : words) EXPECT_NE(run.err.find(word), std::string::npos) << word << " in: " << run.err;
}

TEST(BadInput, ends_in_one_line_that_names_the_place) {
  TempFolder folder;
  write_run(folder);
  const auto expect_train = [&](const std::string& more, const std::vector<std::string>& words) {
    expect_one_line(train_command(folder, more), words);
  };
  expect_train("--ranks 0", {"--ranks", "0"});
  expect_train("--ranks 2 --set training.learnig_rate=1", {"learnig_rate", "learning_rate"});
  expect_train("--set deepspeed.zero_optimisation.stage=1", {"zero_optimisation", "zero_optimization"});
  expect_train("--ranks 2 --set deepspeed.train_batch_size=30", {"30", "train_micro_batch_size_per_gpu 2", "= 4"});
  expect_train("--set deepspeed.zero_optimization.stage=4", {"stage", "4"});
  expect_train("--set data.files=[\\\"/nowhere/**\\\"]", {"/nowhere/**"});
  expect_train("--set training.output_dir=/proc/nought", {"/proc/nought"});
  expect_train("--resume", {"resume"});
  expect_train("--set model.num_attention_heads=5", {"48", "5 heads"});
  expect_train("--ranks 2 --set model.vocab_size=100", {"vocab", "256"});
  expect_train("--set training.max_steps=none", {"max_steps"});
  folder.write("empty.txt", "");
  expect_train(fmt::format("--set data.files=[\\\"{}\\\"]", (folder / "empty.txt").string()), {"data"});
  expect_one_line(kProgram + " train /nowhere/run.json", {"/nowhere/run.json"});
  expect_one_line(kProgram + " eval model chats.jsonl", {"chats.jsonl", "--data"});
  expect_one_line("env RANK=1 WORLD_SIZE=4 " + train_command(folder, ""), {"RANK=1", "WORLD_SIZE=4", "--ranks 4"});
}

TEST(BadInput, damaged_models_and_batches_end_in_one_line) {
  TempFolder folder;
  const std::string golden = test::golden_folder("open/llama");
  const auto probe = [&](const std::string& model, const std::string& input) {
    return fmt::format("{} probe {} --input {} --output {} --ranks 2", kProgram, model, input,
                       (folder / "out.safetensors").string());
  };
  const auto copy_model = [&](const std::string& name) {
    fs::create_directories(folder / name);
    for (const char* file : {"config.json", "model.safetensors"})
      fs::copy_file(golden + "/" + file, folder / name / file, fs::copy_options::overwrite_existing);
    return (folder / name).string();
  };
  const std::string input = golden + "/golden.safetensors";

  const std::string missing = copy_model("missing");
  fs::remove(missing + "/model.safetensors");
  expect_one_line(probe(missing, input), {"model.safetensors"});
  const std::string truncated = copy_model("truncated");
  fs::resize_file(truncated + "/model.safetensors", 5000);
  expect_one_line(probe(truncated, input), {"model.safetensors"});
  const std::string garbage = copy_model("garbage");
  std::ofstream(garbage + "/model.safetensors") << std::string(4096, 'x');
  expect_one_line(probe(garbage, input), {"model.safetensors"});
  const std::string shape = copy_model("shape");
  nlohmann::json config = nlohmann::json::parse(std::ifstream(shape + "/config.json"));
  config["intermediate_size"] = 128;
  std::ofstream(shape + "/config.json") << config.dump();
  expect_one_line(probe(shape, input), {"gate_proj", "128"});

  const Context context = Context::reference();
  const std::vector<int64_t> ids{1, 2, 256, 3};
  save_safetensors(folder / "batch.safetensors", {{"input_ids", Tensor::of<int64_t>(*context.memory, {1, 4}, ids)}});
  expect_one_line(probe(golden, (folder / "batch.safetensors").string()), {"input_ids", "256"});
  expect_one_line(probe(golden, "/nowhere.safetensors"), {"/nowhere.safetensors"});
}

}  // namespace
}  // namespace nought
