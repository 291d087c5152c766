// Files of the flight recorder: what is written is read again, what is damaged is refused, and what a signal leaves.
#include "nought/comm/flight_files.h"

#include <atomic>
#include <csignal>
#include <random>
#include <thread>

#include "support/message_of.h"
#include "support/size.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nought/comm/flight_report.h"

namespace nought::flight_files_test {
namespace {

namespace fs = std::filesystem;
using test::read_bytes;
using test::TempFolder;
using testing::HasSubstr;

/// A recorder with one call that has begun.
struct Recorded {
  Recorded() : recorder(FlightPage::make(), 3, 4, "host"), world(recorder.join(1, "world", 3, 4)) {
    recorder.start(recorder.submit(world, Collective::all_reduce, ReduceOp::max, DType::bf16, 64, -1));
  }
  FlightRecorder recorder;
  FlightMembership world;
};

TEST(FlightFiles, what_is_written_is_read_again) {
  const TempFolder folder;
  const Recorded rank;
  ASSERT_TRUE(write_flight_file(*rank.recorder.page(), folder / "a/b"));
  const FlightSnapshot read = read_flight_file(folder / "a/b/rank-3.flight");
  EXPECT_EQ(read.header.rank, 3);
  EXPECT_EQ(read.header.size, 4);
  EXPECT_EQ(read.header.state, RankState::running);
  EXPECT_GT(read.header.written, 0);
  ASSERT_EQ(read.calls.size(), 1u);
  EXPECT_EQ(read.calls[0].str(), "all_reduce of 64 B bf16");
  EXPECT_EQ(test::names_in(folder / "a/b"), std::vector<std::string>{"rank-3.flight"});
}

NOUGHT_SIZE(medium);
TEST(FlightFiles, a_rank_and_one_that_tells_for_it_may_write_the_same_file_at_once) {
  const TempFolder folder;
  const Recorded rank;
  std::atomic<int> written = 0;
  {
    std::vector<std::jthread> writers;
    for (int writer = 0; writer < 4; ++writer)
      writers.emplace_back([&] {
        for (int i = 0; i < 50; ++i) written += write_flight_file(*rank.recorder.page(), folder.path());
      });
  }
  EXPECT_EQ(written, 200);
  EXPECT_EQ(test::names_in(folder.path()), std::vector<std::string>{"rank-3.flight"});
}

TEST(FlightFiles, a_folder_that_cannot_be_made_is_no_error) {
  const TempFolder folder;
  const Recorded rank;
  folder.write("file", "");
  EXPECT_FALSE(write_flight_file(*rank.recorder.page(), folder / "file"));
}

TEST(FlightFiles, other_files_are_refused_by_name) {
  const TempFolder folder;
  const Recorded rank;
  ASSERT_TRUE(write_flight_file(*rank.recorder.page(), folder.path()));
  const std::string whole = read_bytes(folder / "rank-3.flight");
  for (const std::string& bytes : {std::string(), std::string("text"), whole.substr(0, whole.size() - 8),
                                   whole + "12345678", std::string(whole.size(), '\0')}) {
    const fs::path file = folder.write("other", bytes);
    EXPECT_THAT(test::message_of<IoError>([&] { read_flight_file(file); }),
                HasSubstr(file.string() + " is not a file of the flight recorder"));
  }
  EXPECT_THAT(test::message_of<IoError>([&] { read_flight_file(folder / "none"); }), HasSubstr("none is no file"));
}

TEST(FlightFiles, damaged_bytes_are_refused_or_reported_without_harm) {
  const TempFolder folder;
  const Recorded rank;
  ASSERT_TRUE(write_flight_file(*rank.recorder.page(), folder.path()));
  const std::string whole = read_bytes(folder / "rank-3.flight");
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::string bytes = whole;
    const size_t end = round % 2 == 0 ? 6000 : bytes.size();  // what is not zero lies at the beginning
    for (int flips = 0; flips < 8; ++flips) bytes[random() % end] = static_cast<char>(random());
    try {
      const FlightReport report = flight_report({read_flight_file(folder.write("other", bytes))});
      EXPECT_EQ(report.table.size(), 2u);
      for (const std::string& line : report.table) EXPECT_EQ(line.find_first_of("\n\t\033"), std::string::npos);
    } catch (const IoError&) {
    }
  }
}

TEST(FlightFiles, SIGUSR2_writes_the_file_and_the_process_goes_on) {
  const TempFolder folder;
  const Recorded rank;
  {
    const FlightSignals signals(rank.recorder, folder / "flight");
    testing::internal::CaptureStderr();
    raise(SIGUSR2);
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              fmt::format("nought: rank 3 wrote {}/flight/rank-3.flight\n", folder.path().string()));
  }
  EXPECT_EQ(read_flight_file(folder / "flight/rank-3.flight").calls.size(), 1u);
  struct sigaction now {};
  sigaction(SIGUSR2, nullptr, &now);
  EXPECT_EQ(now.sa_handler, SIG_DFL);
}

TEST(FlightFiles, a_crash_leaves_the_file_and_is_still_a_crash) {
  for (const int signal : {SIGSEGV, SIGABRT, SIGBUS}) {
    const TempFolder folder;
    const Recorded rank;
    const pid_t child = fork();
    if (child == 0) {
      close(STDERR_FILENO);
      struct sigaction action {};
      action.sa_handler = SIG_DFL;  // the sanitizers' handlers would speak first
      sigaction(signal, &action, nullptr);
      const FlightSignals signals(rank.recorder, folder.path());
      raise(signal);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << status;
    EXPECT_EQ(read_flight_file(folder / "rank-3.flight").calls.size(), 1u);
  }
}

}  // namespace
}  // namespace nought::flight_files_test
