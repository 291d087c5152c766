// Whole runs as a user makes them: processes started by the program itself, and equal results at every layout.
#include <cmath>
#include <filesystem>
#include <fstream>

#include "support/golden_root.h"
#include "support/program_runs.h"
#include <gtest/gtest.h>

namespace nought::runs_test {
namespace {

namespace fs = std::filesystem;
using test::Ended;
using test::first_words_of;
using test::kProgram;
using test::losses_of;
using test::metrics_of;
using test::run_program;
using test::TempFolder;
using test::train_command;
using test::write_run;

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
  const Ended resumed = run_program(train_command(folder, "--ranks 2 --resume"));
  EXPECT_NE(resumed.out.find("trained 0 steps"), std::string::npos) << "to the steps that were chosen: " << resumed.out;
  ASSERT_EQ(run_program(train_command(folder, "--ranks 2 --overwrite --set training.max_steps=4")).exit_code, 0);
  EXPECT_EQ(losses_of(folder), losses) << "its learning rates included";
  EXPECT_FALSE(fs::exists(folder / "out/chosen_steps.json")) << "of the run that was overwritten";
  ASSERT_EQ(run_program(train_command(folder, "--overwrite --within 1h")).exit_code, 0);
  EXPECT_EQ(losses_of(folder).size(), 6u);

  for (const char* refused : {"--resume --within 1m", "--within 1m --min-steps 7 --overwrite", "--within soon",
                              "--within 1m --overwrite --set training.max_steps=-1", "--min-steps 3 --overwrite"}) {
    const Ended run = run_program(train_command(folder, refused));
    EXPECT_NE(run.exit_code, 0) << refused;
    EXPECT_EQ(run.error_lines(), 1) << run.err;
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

/// The flags of the first advice.
std::string flags_in(const std::string& text) {
  const size_t begin = text.find(" --set "), end = text.find('\n', begin);
  return begin == std::string::npos ? "" : text.substr(begin, end - begin);
}

TEST(Runs, a_budget_that_is_too_small_ends_every_rank_with_what_would_fit_and_that_runs) {
  for (const int ranks : {1, 2}) {
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
    const std::string proposal = "would fit, in ", mark = "nought: error: ";
    EXPECT_EQ(refused.err.find(mark), refused.err.rfind(mark)) << "said once, not by every rank: " << refused.err;
    EXPECT_NE(refused.err.find(proposal), std::string::npos) << refused.err;
    const std::string change = flags_in(refused.err);
    ASSERT_FALSE(change.empty()) << refused.err;
    const Ended fits = run_program(train_command(folder, tight + change));
    EXPECT_EQ(fits.exit_code, 0) << change << "\n" << fits.err;
    if (ranks > 1) continue;
    std::string of_host = tight;  // on a CPU all of it is in the host's RAM
    of_host.replace(of_host.find("device_memory"), 6, "host");
    const Ended too_much = run_program(train_command(folder, of_host));
    EXPECT_NE(too_much.exit_code, 0);
    EXPECT_NE(too_much.err.find("more than training.host_memory"), std::string::npos) << too_much.err;
    EXPECT_NE(too_much.err.find(proposal), std::string::npos) << too_much.err;
    EXPECT_EQ(run_program(train_command(folder, of_host + change)).exit_code, 0);
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
  fs::copy_file(fs::path(test::golden_root()) / "tokenizer/r50k_base.tokenizer.json", folder / "words/tokenizer.json");
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

}  // namespace
}  // namespace nought::runs_test
