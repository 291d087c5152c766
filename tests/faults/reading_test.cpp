// Every reader of the program makes a call again that a signal interrupts, and says what the system refuses.
#include "reading.h"

#include <cstring>
#include <sstream>

#include "faults.h"
#include "support/known_paths.h"
#include "support/run_program.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::reading_test {
namespace {

using test::Ended;
using test::FaultHow;
using testing::Contains;
using testing::HasSubstr;
using testing::StartsWith;

struct Result {
  Ended ended;
  std::vector<std::string> calls;  // "NAME PATH"
};

/// Reads all files of the folder; at call number `at` happens what `how` names.
Result read_in(const test::TempFolder& folder, size_t at, const FaultHow& how) {
  const test::TempFolder beside;
  const std::filesystem::path root = std::filesystem::canonical(folder.path()), log = beside / "log";
  Result result;
  result.ended = test::run_program(fmt::format(
      "env OMP_NUM_THREADS=1 LD_PRELOAD={} FAULTS_ROOT={} FAULTS_LOG={} FAULTS_AT={} FAULTS_HOW={} {} read {}",
      test::known_path("faults_shim"), root.string(), log.string(), at, how.name.empty() ? "none" : how.name,
      test::known_path("faults_target"), root.string()));
  std::istringstream lines(test::read_bytes(log));
  for (std::string line; std::getline(lines, line);) result.calls.push_back(line);
  return result;
}

std::string name_of_call(const std::string& call) { return call.substr(0, call.find(' ')); }

TEST(FaultyReads, a_call_that_a_signal_interrupts_is_made_again) {
  const test::TempFolder folder;
  test::write_readable_files(folder);
  read_in(folder, 0, {});  // makes what is there from then on
  const Result healthy = read_in(folder, 0, {});
  ASSERT_EQ(healthy.ended.exit_code, 0) << healthy.ended.err;
  for (const char* file : {"run.json", "config.json", "model.safetensors.index.json", "trainer_state.json", "refs/main",
                           "metrics.jsonl", "Train_Samples_lr.csv"})
    EXPECT_THAT(healthy.calls, Contains(testing::AllOf(StartsWith("open "), testing::EndsWith(file))));
  const FaultHow interrupted{"EINTR", test::FaultKind::error, EINTR};
  for (size_t at = 1; at <= healthy.calls.size(); ++at) {
    const std::string call = name_of_call(healthy.calls[at - 1]);
    if (call != "open" && call != "read") continue;  // those of saving have a test of their own
    const Result result = read_in(folder, at, interrupted);
    EXPECT_EQ(result.ended.exit_code, 0) << healthy.calls[at - 1] << ": " << result.ended.err;
    EXPECT_EQ(result.ended.out, healthy.ended.out) << healthy.calls[at - 1];
  }
}

TEST(FaultyReads, what_the_system_refuses_is_said_with_the_file_and_its_reason) {
  const test::TempFolder folder;
  test::write_readable_files(folder);
  read_in(folder, 0, {});  // makes what is there from then on
  const Result healthy = read_in(folder, 0, {});
  int said = 0;
  for (size_t at = 1; at <= healthy.calls.size(); ++at) {
    const std::string& call = healthy.calls[at - 1];
    const bool is_of_file = std::filesystem::is_regular_file(call.substr(call.find(' ') + 1));
    if (!is_of_file || name_of_call(call) != "open") continue;
    const Result result = read_in(folder, at, {"EIO", test::FaultKind::error, EIO});
    EXPECT_EQ(result.ended.exit_code, 1) << call;
    EXPECT_THAT(result.ended.err, HasSubstr(call.substr(call.find(' ') + 1)));
    EXPECT_THAT(result.ended.err, HasSubstr(std::strerror(EIO))) << call;
    ++said;
  }
  EXPECT_GT(said, 8);
}

}  // namespace
}  // namespace nought::reading_test
