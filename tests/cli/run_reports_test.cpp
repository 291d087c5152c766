// What a run tells of its steps where that is asked for: metrics, breakdowns, traces, profiles, resolved values.
#include <fstream>

#include "support/program_runs.h"
#include <gtest/gtest.h>

namespace nought::run_reports_test {
namespace {

using test::Ended;
using test::first_words_of;
using test::losses_of;
using test::metrics_of;
using test::run_program;
using test::TempFolder;
using test::train_command;
using test::write_run;

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

TEST(Runs, metrics_say_how_long_each_checkpoint_took_and_how_long_it_held_up_the_training) {
  TempFolder folder;
  write_run(folder);
  for (const bool beside : {true, false}) {
    const Ended run = run_program(train_command(
        folder, fmt::format("--overwrite --set training.save_steps=3 --set training.async_save={}", beside)));
    ASSERT_EQ(run.exit_code, 0) << run.err;
    std::vector<int> steps;
    for (const nlohmann::json& line : test::metrics_lines(folder / "out/metrics.jsonl", "save_seconds")) {
      steps.push_back(line.at("step"));
      EXPECT_GT(line.at("save_seconds"), 0);
      EXPECT_LE(line.at("save_stall_seconds"), line.at("save_seconds"));
    }
    EXPECT_EQ(steps, (std::vector<int>{3, 6})) << "async_save " << beside;
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

}  // namespace
}  // namespace nought::run_reports_test
