// A run that hangs, from the outside: what it says of a rank that is stopped, what `nought trace` makes of the files
// that it leaves, and the files that a signal asks for.
#include <thread>

#include "support/known_paths.h"
#include "support/run_program.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace nought::hang_test {
namespace {

namespace fs = std::filesystem;
using test::Ended;
using test::run_program;
using test::TempFolder;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::StartsWith;

/// The command of a long run in the folder, of so many ranks.
std::string train(const TempFolder& folder, int ranks = 2) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += fmt::format("line {} of {}.\n", i % 7, i % 31);
  const nlohmann::json run{{"model",
                            {{"model_type", "llama"},
                             {"vocab_size", 256},
                             {"hidden_size", 16},
                             {"intermediate_size", 24},
                             {"num_hidden_layers", 1},
                             {"num_attention_heads", 2},
                             {"max_position_embeddings", 32}}},
                           {"data", {{"files", {folder.write("text.txt", text).string()}}, {"seq_length", 32}}},
                           {"training",
                            {{"max_steps", 1'000'000},
                             {"per_device_train_batch_size", 2},
                             {"save_steps", 0},
                             {"ddp_timeout", 2},
                             {"output_dir", (folder / "out").string()}}}};
  return fmt::format("{} train {} --ranks {}", test::known_path("nought"),
                     folder.write("run.json", run.dump()).string(), ranks);
}

/// Starts the run; when it has made a step, does `then`, in which $pid is the launcher and $rank the process of rank 1;
/// and waits for its end.
Ended disturbed(const TempFolder& folder, const std::string& then) {
  folder.write("disturb.sh", fmt::format(R"(cd {0}
: >log
{1} >log & pid=$!
until grep -q ^step log; do kill -0 $pid || exit 99; sleep 0.05; done
for p in /proc/[0-9]*; do
  tr '\0' ' ' <$p/cmdline | grep -q "train {0}/run.json" || continue
  tr '\0' '\n' <$p/environ | grep -qx OMPI_COMM_WORLD_RANK=1 && rank=${{p#/proc/}}
done 2>/dev/null
echo $rank >rank
{2}
wait $pid
)",
                                         folder.path().string(), train(folder), then));
  return run_program(fmt::format("bash {}/disturb.sh", folder.path().string()));
}

std::string pid_in(const TempFolder& folder) {
  std::string pid = test::read_bytes(folder / "rank");
  while (!pid.empty() && pid.back() == '\n') pid.pop_back();
  return pid;
}

/// Whether the process is gone, or nobody has asked yet how it ended. mpirun kills without waiting.
bool has_ended(const std::string& pid) {
  for (int tries = 0; tries < 100; ++tries) {
    const std::string stat = test::read_bytes("/proc/" + pid + "/stat");
    const size_t state = stat.rfind(") ");
    if (state == std::string::npos || stat[state + 2] == 'Z' || stat[state + 2] == 'X') return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return false;
}

TEST(Hang, a_stopped_rank_is_named_with_a_table_and_its_files_tell_the_same) {
  const TempFolder folder;
  const Ended ended = disturbed(folder, "kill -STOP $rank");
  EXPECT_EQ(ended.exit_code, 1) << ended.err;
  const std::string pid = pid_in(folder);
  EXPECT_THAT(ended.err, StartsWith("nought: error: "));
  EXPECT_THAT(ended.err, AllOf(HasSubstr(" in group of 2 timed out after 2s on rank 0: rank 1 (pid " + pid + " on "),
                               HasSubstr(") is stopped by a signal, in "), HasSubstr("`kill -CONT " + pid + "`"),
                               ContainsRegex("\n    rank  host +pid +state\n    0 "), HasSubstr("s in call "),
                               HasSubstr(" stopped by a signal, in ")));
  const std::string out = (folder / "out").string();
  EXPECT_THAT(ended.err,
              HasSubstr("\n    the last 2000 calls of each rank: nought trace " + out + "/flight-recorder/*.flight\n"));
  EXPECT_TRUE(has_ended(pid)) << "the stopped rank is left behind";

  const Ended traced =
      run_program(fmt::format("{} trace {}/flight-recorder/*.flight --calls 3", test::known_path("nought"), out));
  EXPECT_EQ(traced.exit_code, 0) << traced.err;
  EXPECT_THAT(traced.out, AllOf(HasSubstr("rank 1 (pid " + pid + " on "), HasSubstr("is stopped by a signal, in "),
                                HasSubstr("s in call "), HasSubstr("rank 0, "), HasSubstr(" for ")));
  const Ended twice =
      run_program(fmt::format("{0} trace {1}/flight-recorder/rank-0.flight {1}/flight-recorder/rank-0.flight",
                              test::known_path("nought"), out));
  EXPECT_EQ(twice.exit_code, 1);
  EXPECT_THAT(twice.err, HasSubstr("are both of rank 0"));
  EXPECT_THAT(run_program(fmt::format("{} trace {}/run.json", test::known_path("nought"), folder.path().string())).err,
              HasSubstr("run.json is not a file of the flight recorder"));
}

TEST(Hang, SIGUSR2_leaves_the_flight_recorders_and_the_run_goes_on) {
  const TempFolder folder;
  const Ended ended = disturbed(folder, R"(kill -USR2 $pid
until [ -e out/flight-recorder/rank-0.flight -a -e out/flight-recorder/rank-1.flight ]; do kill -0 $pid || exit 99; sleep 0.05; done
sleep 0.3
kill -USR1 $pid)");
  EXPECT_EQ(ended.exit_code, 138) << ended.err;
  for (const int rank : {0, 1})
    EXPECT_THAT(ended.err, HasSubstr(fmt::format("nought: rank {0} wrote {1}/out/flight-recorder/rank-{0}.flight\n",
                                                 rank, folder.path().string())));
  EXPECT_THAT(test::read_bytes(folder / "log"), HasSubstr("interrupted after step"));
  const Ended traced = run_program(
      fmt::format("{} trace {}/out/flight-recorder/*.flight", test::known_path("nought"), folder.path().string()));
  EXPECT_EQ(traced.exit_code, 0) << traced.err;
  EXPECT_THAT(traced.out, StartsWith("rank  host"));
}

TEST(Hang, a_run_of_one_rank_writes_what_it_does_too_and_goes_on) {
  const TempFolder folder;
  folder.write("signal.sh", fmt::format(R"(cd {0}
: >log
{1} >log & pid=$!
until grep -q ^step log; do kill -0 $pid || exit 99; sleep 0.05; done
kill -USR2 $pid
until [ -e out/flight-recorder/rank-0.flight ]; do kill -0 $pid || exit 99; sleep 0.05; done
sleep 0.3
kill -USR1 $pid
wait $pid
)",
                                        folder.path().string(), train(folder, 1)));
  const Ended ended = run_program(fmt::format("bash {}/signal.sh", folder.path().string()));
  EXPECT_EQ(ended.exit_code, 138) << ended.err;
  EXPECT_THAT(test::read_bytes(folder / "log"), HasSubstr("interrupted after step"));
  const Ended traced = run_program(
      fmt::format("{} trace {}/out/flight-recorder/rank-0.flight", test::known_path("nought"), folder.path().string()));
  EXPECT_EQ(traced.exit_code, 0) << traced.err;
  EXPECT_THAT(traced.out, AllOf(HasSubstr(" in "), HasSubstr(", step "), HasSubstr("no call waits for a rank\n")));
}

/// The evaluation would take minutes: however late the signals come, it is there.
TEST(Hang, a_command_without_an_output_folder_writes_beside_its_caller) {
  const TempFolder folder;
  ASSERT_EQ(run_program(train(folder, 1) + " --set training.max_steps=1 --set model.hidden_size=128 "
                                           "--set model.intermediate_size=256")
                .exit_code,
            0);
  std::string text;
  for (int i = 0; i < 400'000; ++i) text += fmt::format("line {} of {}.\n", i % 7, i % 31);
  folder.write("long.txt", text);
  folder.write("signal.sh", fmt::format(R"sh(cd {0}
below() {{ for child in $(cat /proc/$1/task/*/children); do echo $child; below $child; done; }} 2>/dev/null
{1} eval out --data long.txt --ranks 2 --set training.ddp_timeout=2 & pid=$!
ready=0
until [ $ready = 2 ]; do  # both ranks handle SIGUSR2
  kill -0 $pid || exit 99
  ready=0
  for p in $(below $pid); do
    tr '\0' '\n' </proc/$p/environ | grep -q ^OMPI_COMM_WORLD_RANK= || continue
    [ $((0x$(awk '/^SigCgt/ {{ print $2 }}' /proc/$p/status) & 0x800)) -ne 0 ] && ready=$((ready + 1)) && rank=$p
  done 2>/dev/null
  sleep 0.05
done
kill -USR2 $pid
until [ $(ls flight-recorder.*/rank-*.flight 2>/dev/null | wc -l) = 2 ]; do kill -0 $pid || exit 99; sleep 0.05; done
kill -STOP $rank
wait $pid
)sh",
                                        folder.path().string(), test::known_path("nought")));
  const Ended ended = run_program(fmt::format("bash {}/signal.sh", folder.path().string()));
  EXPECT_EQ(ended.exit_code, 1) << ended.err;
  EXPECT_THAT(ended.err, AllOf(HasSubstr("nought: rank 0 wrote flight-recorder."), HasSubstr("nought: rank 1 wrote "),
                               HasSubstr(" timed out after 2s on rank "), HasSubstr(" is stopped by a signal, in "),
                               HasSubstr("nought trace flight-recorder.")));
}

}  // namespace
}  // namespace nought::hang_test
