// The program where its surroundings are poor: streams that are closed or full, and little address space.
#include "support/known_paths.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/base/text.h"

namespace nought::surroundings_test {
namespace {

using test::Ended;
using test::read_bytes;
using test::run_program;
using test::TempFolder;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

Ended run_in_shell(const std::string& script) { return run_program("bash -c '" + script + "'"); }

/// The arguments of a run of six tiny steps, whose metrics are in out/metrics.jsonl of the folder.
std::string small_run(const TempFolder& folder) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += fmt::format("line {} of a text\n", i % 17);
  folder.write("text.txt", text);
  const nlohmann::json run = {
      {"model",
       {{"model_type", "llama"},
        {"vocab_size", 256},
        {"hidden_size", 32},
        {"intermediate_size", 32},
        {"num_hidden_layers", 1},
        {"num_attention_heads", 2},
        {"max_position_embeddings", 64}}},
      {"data", {{"files", {(folder / "text.txt").string()}}, {"tokenizer", "bytes"}, {"seq_length", 32}}},
      {"training", {{"max_steps", 6}, {"logging_steps", 1}, {"output_dir", (folder / "out").string()}}}};
  return fmt::format("{} train {}", test::known_path("nought"), folder.write("run.json", run.dump()).string());
}

TEST(Surroundings, closed_streams_leave_the_metrics_to_themselves) {
  for (const int ranks : {1, 2}) {
    const TempFolder folder;
    const Ended ended = run_in_shell(fmt::format("{} --ranks {} <&- >&- 2>&-", small_run(folder), ranks));
    EXPECT_EQ(ended.exit_code, 0);
    std::string metrics = read_bytes(folder / "out/metrics.jsonl");
    ASSERT_FALSE(metrics.empty());
    metrics.pop_back();
    for (const std::string& line : split(metrics, '\n')) EXPECT_TRUE(nlohmann::json::accept(line)) << line;
  }
}

TEST(Surroundings, a_full_stdout_is_an_error_of_every_command) {
  const TempFolder folder;
  for (const std::string& command :
       {std::string(test::known_path("nought") + " info"), std::string(test::known_path("nought") + " --help"),
        std::string(test::known_path("nought") + " help train"), std::string(test::known_path("nought") + " --version"),
        small_run(folder)}) {
    const Ended ended = run_in_shell(command + " >/dev/full");
    EXPECT_EQ(ended.exit_code, 1) << command;
    EXPECT_THAT(ended.err, StartsWith("nought: error: standard output: cannot write")) << command;
    EXPECT_EQ(ended.error_lines(), 1) << ended.err;
  }
}

TEST(Surroundings, a_run_whose_reader_has_gone_ends_quietly) {
  const TempFolder folder;
  for (const int ranks : {1, 2}) {
    const Ended ended =
        run_in_shell(fmt::format("{} --overwrite --set training.max_steps=100000 --ranks {} | head -n 1; "
                                 "exit ${{PIPESTATUS[0]}}",
                                 small_run(folder), ranks));
    EXPECT_EQ(ended.exit_code, 141);
    EXPECT_EQ(ended.err, "");
  }
}

TEST(Surroundings, a_file_larger_than_the_limit_is_named) {
  const TempFolder folder;
  const Ended ended = run_in_shell("ulimit -f 8; " + small_run(folder));
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err, HasSubstr("File too large"));
  EXPECT_THAT(ended.err, HasSubstr(folder.path().string()));
  EXPECT_EQ(ended.error_lines(), 1) << ended.err;
}

TEST(Surroundings, a_plan_that_finds_no_address_space_names_the_limit) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers reserve terabytes";
#endif
  const TempFolder folder;
  small_run(folder);
  const Ended ended =
      run_in_shell(fmt::format("ulimit -v 2000000; {} plan {} --set model.hidden_size=8192 "
                               "--set model.intermediate_size=65536",
                               test::known_path("nought"), (folder / "run.json").string()));
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err, HasSubstr("ulimit -v"));
  EXPECT_EQ(ended.error_lines(), 1) << ended.err;
  // No room for a second thread, of which libgomp would speak.
  const Ended small = run_in_shell(fmt::format("ulimit -v 60000; env OMP_NUM_THREADS=8 {} plan {}",
                                               test::known_path("nought"), (folder / "run.json").string()));
  EXPECT_THAT(small.err, testing::AnyOf("", StartsWith("nought: error: out of memory"), HasSubstr("ulimit -v")));
  EXPECT_THAT(small.err, Not(HasSubstr("libgomp")));
}

}  // namespace
}  // namespace nought::surroundings_test
