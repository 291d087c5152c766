#include "nought/cli/launch.h"

#include <tuple>
#include <utility>

#include "support/known_paths.h"
#include "support/run_program.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/cli/stop_signals.h"

namespace nought::launch_test {
namespace {

using test::Ended;
using test::run_program;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Ended run_ranks_program(const std::string& arguments, const std::string& environment = "",
                        const std::string& limit = "60") {
  return run_program("env -u OMP_NUM_THREADS " + environment + " " + test::known_path("ranks") + " " + arguments,
                     limit);
}

/// Exactly one line on stderr, which holds the text.
void expect_one_error(const Ended& ended, const std::string& text) {
  EXPECT_EQ(ended.error_lines(), 1) << ended.err;
  EXPECT_THAT(ended.err, StartsWith("nought: error: "));
  EXPECT_THAT(ended.err, HasSubstr(text));
}

TEST(Launch, one_rank_needs_no_mpirun) {
  for (const char* ranks : {"", "--ranks 1"}) {
    const Ended ended = run_ranks_program(std::string("sum ") + ranks, "PATH=/nowhere");
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_THAT(ended.out, StartsWith("rank 0 of 1 on self: sum 1, "));
  }
}

TEST(Launch, ranks_compute_together) {
  const Ended ended = run_ranks_program("sum --ranks 3");
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(ended.err, "");
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_THAT(ended.out, HasSubstr(fmt::format("rank {} of 3 on mpi: sum 6, ", rank)));
  EXPECT_THAT(ended.out, HasSubstr("terminal 0"));
}

TEST(Launch, threads_of_the_user_are_kept) {
  EXPECT_THAT(run_ranks_program("sum --ranks 2", "OMP_NUM_THREADS=3").out,
              HasSubstr("rank 1 of 2 on mpi: sum 3, 3 threads"));
  EXPECT_THAT(run_ranks_program("sum", "OMP_NUM_THREADS=3").out, HasSubstr("on self: sum 1, 3 threads"));
}

TEST(Launch, joins_a_job_of_mpirun) {
  const std::string job =
      "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun -q --oversubscribe -n 2 ";
  const Ended joined = run_program(job + test::known_path("ranks") + " sum");
  EXPECT_EQ(joined.exit_code, 0) << joined.err;
  EXPECT_THAT(joined.out, HasSubstr("rank 1 of 2 on mpi: sum 3, "));
  const Ended mismatch = run_program(job + test::known_path("ranks") + " sum --ranks 3");
  EXPECT_NE(mismatch.exit_code, 0);
  expect_one_error(mismatch, "--ranks is 3, but the job that this process belongs to has 2 ranks");
}

TEST(Launch, impossible_numbers_of_ranks_are_refused) {
  for (const char* ranks : {"0", "-2"}) {
    const Ended ended = run_ranks_program(std::string("sum --ranks ") + ranks);
    EXPECT_EQ(ended.exit_code, 1);
    expect_one_error(ended, std::string("--ranks must be at least 1, got ") + ranks);
  }
}

TEST(Launch, invalid_input_is_reported_once_before_any_rank_exists) {
  const Ended ended = run_ranks_program("invalid --ranks 2", "PATH=/nowhere");
  EXPECT_EQ(ended.exit_code, 1);
  expect_one_error(ended, "this input is invalid");
}

TEST(Launch, a_missing_mpirun_says_how_to_install_it) {
  const Ended ended = run_ranks_program("sum --ranks 2", "PATH=/nowhere");
  EXPECT_EQ(ended.exit_code, 1);
  expect_one_error(ended, "apt install openmpi-bin");
}

TEST(Launch, a_missing_host_file_is_named) {
  const Ended ended = run_ranks_program("sum --ranks 2 --hostfile /nowhere/hosts");
  EXPECT_EQ(ended.exit_code, 1);
  expect_one_error(ended, "/nowhere/hosts");
}

TEST(Launch, a_bad_host_file_is_refused_with_host_and_line_before_mpirun_sees_it) {
  const std::string path = (std::filesystem::temp_directory_path() / fmt::format("nought-bad-{}", getpid())).string();
  std::ofstream(path) << "localhost slots=2\nother slots=abc\n";
  const Ended slots = run_ranks_program("sum --hostfile " + path);
  expect_one_error(slots, ":2: host other: slots: expected a number");
  std::ofstream(path) << "localhost slots=2\n";
  expect_one_error(run_ranks_program("sum --ranks 3 --hostfile " + path), "has 2 slots on 1 hosts");
  expect_one_error(run_ranks_program("sum --exclude vm --hostfile " + path), "has no host \"vm\"");
  std::filesystem::remove(path);
  expect_one_error(run_ranks_program("sum --include localhost"), "hosts of --hostfile, which is not given");
}

TEST(Launch, a_host_that_does_not_answer_is_named) {
  const std::string path = (std::filesystem::temp_directory_path() / fmt::format("nought-dead-{}", getpid())).string();
  std::ofstream(path) << "localhost slots=1\nnowhere slots=1\n";
  const Ended ended = run_ranks_program("sum --hostfile " + path, "OMPI_MCA_plm_rsh_agent=/bin/false");
  std::filesystem::remove(path);
  EXPECT_NE(ended.exit_code, 0);
  expect_one_error(ended, "host nowhere (line 2 of the host file): no answer to `/bin/false nowhere true`");
}

TEST(Launch, a_host_file_places_the_ranks) {
  const std::string path = (std::filesystem::temp_directory_path() / fmt::format("nought-hosts-{}", getpid())).string();
  std::ofstream(path) << "localhost slots=2\n";
  const Ended ended = run_ranks_program("sum --hostfile " + path);
  std::filesystem::remove(path);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("rank 1 of 2 on mpi: sum 3, "));
}

TEST(Launch, a_common_error_is_printed_once) {
  const Ended ended = run_ranks_program("all_fail --ranks 3");
  EXPECT_EQ(ended.exit_code, 1);
  expect_one_error(ended, "nought: error: weights.safetensors is missing");
}

TEST(Launch, a_failing_rank_signs_its_error_and_ends_the_others) {
  const Ended ended = run_ranks_program("last_fails --ranks 3");
  EXPECT_EQ(ended.exit_code, 1);
  expect_one_error(ended, "nought: error: [rank 2] the disk of this rank is full");
}

TEST(Launch, a_rank_that_vanishes_ends_the_job_with_one_line) {
  const Ended exited = run_ranks_program("last_exits --ranks 2");
  EXPECT_EQ(exited.exit_code, 3);
  EXPECT_THAT(exited.err, HasSubstr("nought: error: "));
  const Ended killed = run_ranks_program("last_killed --ranks 2");
  EXPECT_NE(killed.exit_code, 0);
  expect_one_error(killed, "rank 1");
  EXPECT_THAT(killed.err, HasSubstr("signal 9 (Killed)"));
}

TEST(Launch, a_data_file_that_becomes_shorter_is_named_in_one_line) {
  for (const int ranks : {1, 2}) {
    const test::TempFolder folder;
    const Ended ended = run_program(fmt::format("bash -c 'cd {}; {} lose_page --ranks {}'", folder.path().string(),
                                                test::known_path("ranks"), ranks));
    EXPECT_EQ(ended.exit_code, 1);
    EXPECT_THAT(ended.out, HasSubstr("byte 120")) << "what is still there can be read";
    expect_one_error(ended, "lost.tokens: has become shorter while it is read: 4096 bytes, it had 1048576");
  }
}

TEST(Launch, who_reads_no_more_ends_the_ranks_without_a_word) {
  for (const int ranks : {1, 2}) {
    const Ended ended = run_program(fmt::format("bash -c '{} talk --ranks {} | head -n 1; exit ${{PIPESTATUS[0]}}'",
                                                test::known_path("ranks"), ranks));
    EXPECT_EQ(ended.exit_code, 141) << "SIGPIPE, as of any program";
    EXPECT_EQ(ended.err, "");
    EXPECT_EQ(ended.out, "talk\n");
  }
}

TEST(Launch, output_that_cannot_be_written_is_an_error) {
  for (const int ranks : {1, 2}) {
    const Ended ended =
        run_program(fmt::format("bash -c '{} talk --ranks {} >/dev/full'", test::known_path("ranks"), ranks));
    EXPECT_EQ(ended.exit_code, 1);
    expect_one_error(ended, "standard output: cannot write: No space left on device");
  }
}

TEST(Launch, limits_that_ranks_run_into_are_named_before_there_are_any) {
  for (const auto& [limit, text] :
       {std::pair("-n 32", "the limit of open files is 32 (ulimit -n), 2 ranks and mpirun need"),
        std::pair("-f 1024", "the limit of the size of a file is 1.00 MiB (ulimit -f)")}) {
    const Ended ended =
        run_program(fmt::format("bash -c 'ulimit {}; {} sum --ranks 2'", limit, test::known_path("ranks")));
    EXPECT_EQ(ended.exit_code, 1);
    expect_one_error(ended, text);
    EXPECT_EQ(run_program(fmt::format("bash -c 'ulimit {}; {} sum'", limit, test::known_path("ranks"))).exit_code, 0)
        << "one rank needs neither";
  }
}

TEST(Launch, ranks_start_within_the_limits_that_are_asked_for) {
  const std::string start = test::known_path("ranks") + " sum --ranks 4";
  const Ended refused = run_program(fmt::format("bash -c 'ulimit -n 32; {}'", start));
  const size_t at = refused.err.find("`ulimit -n ");
  ASSERT_NE(at, std::string::npos) << refused.err;
  const int needed = std::atoi(refused.err.c_str() + at + 11);
  const Ended ended = run_program(fmt::format("bash -c 'ulimit -n {}; ulimit -f 16384; {}'", needed, start));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(ended.err, "");
}

TEST(Launch, a_signal_ends_every_rank) {
  for (int ranks : {1, 2}) {
    const Ended ended = run_ranks_program(fmt::format("sleep --ranks {}", ranks), "", "--preserve-status -s TERM 2");
    EXPECT_EQ(ended.exit_code, 143) << ended.err;  // 137: they had to be killed
  }
}

/// Runs the program and sends it signals, the first when it has printed "begins", each other a second later. `first` is
/// done by the shell that starts it.
Ended signalled(const std::string& arguments, std::initializer_list<const char*> signals, const char* first = ":") {
  std::string script = fmt::format("{}; : >$0/log; env -u OMP_NUM_THREADS {} {} >$0/log & pid=$!; ", first,
                                   test::known_path("ranks"), arguments);
  script += "until grep -q begins $0/log; do kill -0 $pid || break; sleep 0.05; done; ";
  const char* pause = "";  // between two
  for (const char* signal : signals)
    script += fmt::format("{}kill -{} $pid; ", std::exchange(pause, "sleep 1; "), signal);
  script += "wait $pid; code=$?; cat $0/log; exit $code";
  const test::TempFolder folder;
  return run_program(fmt::format("bash -c '{}' {}", script, folder.path().string()));
}

TEST(Launch, ranks_that_finish_their_step_are_asked_once_by_whatever_signal) {
  for (const auto& [ranks, signal, code] :
       {std::tuple(1, "TERM", 143), std::tuple(2, "TERM", 143), std::tuple(2, "USR1", 138)}) {
    SCOPED_TRACE(fmt::format("SIG{}, {} ranks", signal, ranks));
    const Ended ended = signalled(fmt::format("finish_step --ranks {}", ranks), {signal});
    EXPECT_EQ(ended.exit_code, code);
    EXPECT_EQ(ended.err, kStopWord);
    for (int rank = 0; rank < ranks; ++rank) EXPECT_THAT(ended.out, HasSubstr(fmt::format("rank {} stops", rank)));
  }
}

TEST(Launch, a_hangup_that_is_ignored_when_it_starts_as_by_nohup_ends_nobody) {
  for (const int ranks : {1, 2}) {
    SCOPED_TRACE(fmt::format("{} ranks", ranks));
    const std::string job = fmt::format("finish_step --ranks {}", ranks);
    const Ended ended = signalled(job, {"HUP", "TERM"}, "trap \"\" HUP");
    EXPECT_EQ(ended.exit_code, 143) << ended.err;
    for (int rank = 0; rank < ranks; ++rank) EXPECT_THAT(ended.out, HasSubstr(fmt::format("rank {} stops", rank)));
    EXPECT_EQ(signalled(job, {"HUP"}).exit_code, 129) << "and otherwise it does";
  }
}

TEST(Launch, a_signal_to_a_job_of_mpirun_reaches_its_ranks) {
  const std::string job =
      "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun -q --oversubscribe -n 2 ";
  const test::TempFolder folder;
  const Ended ended =
      run_program(fmt::format("bash -c ': >$0/log; {} {} finish_step >$0/log & pid=$!; until grep -q begins $0/log; do "
                              "kill -0 $pid || break; sleep 0.05; "
                              "done; kill -USR1 $pid; wait $pid; code=$?; cat $0/log; exit $code' {}",
                              job, test::known_path("ranks"), folder.path().string()));
  EXPECT_EQ(ended.exit_code, 138) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("rank 0 stops"));
  EXPECT_THAT(ended.out, HasSubstr("rank 1 stops"));
}

TEST(Launch, a_second_signal_ends_every_rank_at_once) {
  for (const int ranks : {1, 2}) {
    const Ended ended = signalled(fmt::format("hang --ranks {}", ranks), {"TERM", "TERM"});
    EXPECT_EQ(ended.exit_code, 143) << ended.err;
    EXPECT_THAT(ended.err, StartsWith(kStopWord));
    if (ranks > 1) {
      EXPECT_THAT(ended.err, HasSubstr("nought: error: stopped by signal 15 (Terminated)"));
    }
  }
}

}  // namespace
}  // namespace nought::launch_test
