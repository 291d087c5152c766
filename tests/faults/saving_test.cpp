// Every system call of saving fails, in every way that it may: what is on the disk afterwards is the old state or the
// new one, whole, the message names the file and the cause, and the next save works.
//
// The suite makes each call fail in one way. With NOUGHT_FAULTS=whole (scripts/faults.sh) it fails in all ways, with
// two ranks, and in a whole run.
#include "saving.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <sstream>

#include "faults.h"
#include "support/known_paths.h"
#include "support/run_program.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::saving_test {
namespace {

namespace fs = std::filesystem;
using test::Ended;
using test::FaultHow;
using test::FaultKind;
using test::kFaultCrash;
using test::kFaultHows;
using test::may_befall;
using test::TempFolder;
using testing::AllOf;
using testing::AnyOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

bool whole_sweep() {
  const char* asked = std::getenv("NOUGHT_FAULTS");
  return asked != nullptr && std::string(asked) == "whole";
}

/// What is saved in a folder that has something saved, as arguments of faults_target behind the folder.
struct Scenario {
  std::string task, prepare, save;  // "save", "1 1 2", "2 2 2"
  bool names_cause = true;          // each message has the system's reason
  std::vector<FaultHow> hows = {kFaultHows.begin(), kFaultHows.end()};
};

struct Result {
  Ended ended;
  std::vector<std::string> calls;  // their names
  std::vector<std::string> lines;  // the same with paths
};

class Sweep {
 public:
  explicit Sweep(const Scenario& scenario) : scenario_(scenario) {
    root_ = fs::canonical(folder_.path()) / "out";
    prepare();
    old_ = states();
    healthy_ = run(0, {});
    new_ = states();
  }

  const Result& healthy() const { return healthy_; }
  const std::map<std::string, std::vector<float>>& new_states() const { return new_; }

  /// Makes call number `at` fail and looks at what is left.
  void check(size_t at, const FaultHow& how) {
    prepare();
    const Result result = run(at, how);
    const std::string call = at <= result.lines.size() ? result.lines[at - 1] : "(no such call)";
    SCOPED_TRACE(fmt::format("{} at call {}: {}\n{}", how.name, at, call, result.ended.err));
    const int code = result.ended.exit_code;
    EXPECT_THAT(code, AnyOf(0, 1, kFaultCrash));
    const auto left = states();
    EXPECT_FALSE(left.empty()) << "no checkpoint is left";
    for (const auto& [name, values] : left) {
      const auto was = old_.find(name), will_be = new_.find(name);
      EXPECT_TRUE((was != old_.end() && values == was->second) || (will_be != new_.end() && values == will_be->second))
          << name << " is neither the old nor the new state";
    }
    if (code == 0) {
      EXPECT_EQ(left.rbegin()->first, new_.rbegin()->first) << "it says that it has saved";
      EXPECT_TRUE(left.rbegin()->second == new_.rbegin()->second) << "it says that it has saved";
    }
    if (how.error == EINTR) {
      EXPECT_EQ(code, 0) << "a call that a signal interrupts is made again";
    }
    if (call.starts_with("fsync ") && (how.error == EIO || how.error == ENOSPC)) {
      EXPECT_EQ(code, 1) << "what could not be flushed, a file or a folder, was passed over in silence";
    }
    if (code == 1) {
      EXPECT_THAT(result.ended.err, HasSubstr(root_.string())) << "the message names no file";
      EXPECT_EQ(result.ended.error_lines(), 1);
      if (scenario_.names_cause) {
        EXPECT_THAT(result.ended.err, HasSubstr(std::strerror(how.error))) << "the message names no cause";
      }
    }
    if (!whole_sweep() && at % 4 != 0) return;
    const Result again = run(0, {});
    EXPECT_EQ(again.ended.exit_code, 0) << "the save after it: " << again.ended.err;
    EXPECT_TRUE(states() == new_) << "the save after it";
  }

 private:
  void prepare() {
    fs::remove_all(root_);
    if (fs::exists(prepared_)) return fs::copy(prepared_, root_, fs::copy_options::recursive);
    text();
    const Ended ended = test::run_program(fmt::format("{} {} {} {}", test::known_path("faults_target"), scenario_.task,
                                                      root_.string(), replaced(scenario_.prepare)));
    if (ended.exit_code != 0) throw std::runtime_error(ended.err);
    fs::copy(root_, prepared_, fs::copy_options::recursive);
  }

  void text() {
    std::string text;
    for (int i = 0; i < 100; ++i) text += fmt::format("line {} of a text.\n", i % 13);
    folder_.write("text.txt", text);
  }

  std::string replaced(std::string arguments) const {
    const size_t at = arguments.find("TEXT");
    return at == std::string::npos ? arguments : arguments.replace(at, 4, (folder_ / "text.txt").string());
  }

  Result run(size_t at, const FaultHow& how) {
    const fs::path log = folder_ / "log";
    fs::remove(log);
    Result result;
    result.ended = test::run_program(fmt::format(
        "env OMP_NUM_THREADS=1 LD_PRELOAD={} FAULTS_ROOT={} FAULTS_LOG={} FAULTS_AT={} FAULTS_HOW={} {} {} {} {}",
        test::known_path("faults_shim"), root_.string(), log.string(), at, how.name.empty() ? "none" : how.name,
        test::known_path("faults_target"), scenario_.task, root_.string(), replaced(scenario_.save)));
    std::istringstream lines(test::read_bytes(log));
    for (std::string line; std::getline(lines, line);) {
      result.calls.push_back(line.substr(0, line.find(' ')));
      result.lines.push_back(line);
    }
    return result;
  }

  /// The values of all checkpoints in the folder, by name.
  std::map<std::string, std::vector<float>> states() const {
    std::map<std::string, std::vector<float>> states;
    for (const fs::path& path : list_checkpoints(root_)) {
      const std::string name = path.filename().string();
      try {
        states[name] = test::values_of(path);
      } catch (const Error& error) {
        ADD_FAILURE() << name << " is not whole: " << error.what();
      }
    }
    return states;
  }

  Scenario scenario_;
  TempFolder folder_;
  fs::path root_, prepared_ = folder_ / "prepared";
  Result healthy_;
  std::map<std::string, std::vector<float>> old_, new_;
};

/// `stride`: the suite makes every so manieth call fail.
void sweep(const Scenario& scenario, size_t stride = 1) {
  Sweep sweep(scenario);
  ASSERT_EQ(sweep.healthy().ended.exit_code, 0) << sweep.healthy().ended.err;
  const std::vector<std::string>& calls = sweep.healthy().calls;
  size_t faults = 0;
  for (size_t at = 1; at <= calls.size(); at += whole_sweep() ? 1 : stride) {
    std::vector<FaultHow> hows;
    for (const FaultHow& how : scenario.hows)
      if (may_befall(how, calls[at - 1])) hows.push_back(how);
    if (!whole_sweep() && !hows.empty()) hows = {hows[at % hows.size()]};
    for (const FaultHow& how : hows) sweep.check(at, how), ++faults;
    if (testing::Test::HasFailure()) return;  // the first tells enough
  }
  std::printf("%zu faults at %zu system calls\n", faults, calls.size());
}

TEST(Faults, the_shim_sees_every_kind_of_call_that_saving_makes) {
  const Sweep sweep({"save", "1 1 1", "2 2 1"});
  const std::vector<std::string>& calls = sweep.healthy().calls;
  for (const char* name : {"mkdir", "create", "ftruncate", "pwrite", "fsync", "close", "rename", "remove", "read"})
    EXPECT_THAT(calls, Contains(name));
  EXPECT_THAT(
      sweep.healthy().lines,
      Contains(AllOf(HasSubstr("pwrite "), HasSubstr("/out/checkpoint-2.partial/rank-00000.safetensors.partial"))));
  ASSERT_EQ(sweep.new_states().size(), 1u);
  EXPECT_EQ(sweep.new_states().begin()->first, "checkpoint-2");
}

TEST(Faults, a_next_checkpoint_is_there_whole_or_the_one_before_it_is) { sweep({"save", "1 1 1", "2 2 1"}); }

TEST(Faults, a_checkpoint_that_is_written_again_is_the_old_or_the_new_one) { sweep({"save", "1 1 1", "1 2 1"}, 3); }

TEST(Faults, ranks_that_save_together_leave_the_old_or_the_new_one) {
  if (whole_sweep()) return sweep({"save", "1 1 2", "2 2 2"});
  Sweep few({"save", "1 1 2", "2 2 2"});
  const size_t count = few.healthy().calls.size();
  for (size_t at = count / 8; at <= count; at += count / 8) few.check(at, kFaultHows[at % 2 == 0 ? 0 : 4]);
}

TEST(Faults, a_run_that_fails_while_it_saves_can_be_resumed) {
  const Scenario scenario{
      "train", "TEXT 1 1", "TEXT 2 1", /*names_cause=*/false, {kFaultHows[0], kFaultHows[5], kFaultHows[6]}};
  if (whole_sweep()) return sweep(scenario);
  Sweep few(scenario);
  const size_t count = few.healthy().calls.size();
  for (const size_t at : {count / 3, 2 * count / 3}) few.check(at, kFaultHows[5]);
}

}  // namespace
}  // namespace nought::saving_test
