#include "nought/cli/supervised_job.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <thread>

#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nought/base/error.h"
#include "nought/base/host.h"
#include "nought/base/open_file.h"
#include "nought/base/process.h"
#include "nought/cli/failure.h"
#include "nought/cli/stop_signals.h"
#include "nought/comm/flight_keeper.h"

namespace nought {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLook{50};                 // between two looks at the job
constexpr std::chrono::seconds kAfterWishes{20};  // what a job gets that was told twice to end
constexpr std::string_view kErrorPrefix = "nought: error: ";

/// The first error among the lines of a stream.
class ErrorLines {
 public:
  void feed(std::string_view bytes) {
    for (const char c : bytes) {
      if (c != '\n') {
        line_ += c;
        continue;
      }
      if (message_.empty() && line_.starts_with(kErrorPrefix)) message_ = line_.substr(kErrorPrefix.size());
      line_.clear();
    }
  }
  const std::string& message() const { return message_; }

 private:
  std::string line_, message_;
};

pid_t start_self(const SupervisedJob& job, const FlightKeeper& keeper, const Pipe& err, const EndingSignals& signals) {
  ChildProgram self{.path = "/proc/self/exe",
                    .arguments = {"nought"},
                    .environment = {keeper.variable(), fmt::format("{}=1", kSupervisedVariable)},
                    .err = err.write_end()};
  self.arguments.insert(self.arguments.end(), job.arguments.begin(), job.arguments.end());
  for (char** variable = environ; *variable != nullptr; ++variable) self.environment.emplace_back(*variable);
  return start_child("the run", std::move(self), signals);
}

void kill_descendants() {
  for (const int pid : descendants_of(getpid())) kill(pid, SIGKILL);
}

/// Kills what the job has left, and waits until it is gone. This process is its reaper.
void end_descendants() {
  const auto limit = Clock::now() + std::chrono::seconds(30);
  while (Clock::now() < limit) {
    if (descendants_of(getpid()).empty()) return;
    kill_descendants();
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    std::this_thread::sleep_for(milliseconds(5));
  }
}

/// One job, from its start to its end.
class Attendance {
 public:
  Attendance(const SupervisedJob& job, const EndingSignals& signals)
      : job_(job), signals_(signals), keeper_(job.ranks), child_(start_self(job, keeper_, err_, signals)) {
    err_.close_write_end();
  }

  JobEnd until_end() {
    int status = 0;
    while (waitpid(child_, &status, WNOHANG) != child_) {
      attend(kLook);
      const Clock::duration standstill = watch_.standstill();
      if (!end_.hung && standstill > job_.patience && (watch_.begun() || job_.all_here)) end_hung();
      const bool heeds_no_wish = wishes_ > 1 && Clock::now() > last_wish_ + kAfterWishes;
      if (heeds_no_wish || (end_.wish != 0 && standstill > kStandstill && watch_.begun())) kill_descendants();
    }
    end_.code = WIFEXITED(status) ? WEXITSTATUS(status) : exit_code_of(WTERMSIG(status));
    end_descendants();
    while (attend(milliseconds(0))) {
    }
    tell_what_was_lost(WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    return end_;
  }

 private:
  /// Waits for what the job says or the user wishes. Whether it said something.
  bool attend(milliseconds patience) {
    std::array<pollfd, 2> events{pollfd{err_.read_end(), POLLIN, 0}, pollfd{signals_.fd(), POLLIN, 0}};
    poll(events.data(), events.size(), static_cast<int>(patience.count()));
    if (const int signal = signals_.take(); signal != 0) pass_on(signal);
    if (lost_ < 0 && end_.wish == 0) lost_ = keeper_.lost_rank();
    std::array<char, 4096> bytes;
    if ((events[0].revents & POLLIN) == 0) {
      // A pipe whose writers are gone is always ready.
      if (events[0].revents != 0 && patience.count() > 0) std::this_thread::sleep_for(patience);
      return false;
    }
    const ssize_t count = read(err_.read_end(), bytes.data(), bytes.size());
    if (count <= 0) return false;
    const std::string_view said(bytes.data(), static_cast<size_t>(count));
    write_all(STDERR_FILENO, said);  // unless nobody reads it any more
    errors_.feed(said);
    return true;
  }

  void pass_on(int signal) {
    kill(child_, signal);
    if (signal == SIGUSR2) return;  // no wish to end: the ranks write their flight recorders
    end_.wish = signal;
    ++wishes_;
    last_wish_ = Clock::now();
  }

  void end_hung() {
    end_.hung = true;
    const int rank = std::max(keeper_.lost_rank(), 0);
    const std::string what = keeper_.describe(rank);
    end_.cause = fmt::format("no rank got on for {} s{}{}",
                             std::chrono::duration_cast<std::chrono::seconds>(job_.patience).count(),
                             what.empty() ? "" : ": ", what);
    if (!what.empty()) lost_ = rank;
    kill_descendants();
  }

  void tell_what_was_lost(int signal) {
    end_.step = keeper_.step();
    if (end_.cause.empty()) end_.cause = errors_.message();
    if (end_.cause.empty())
      end_.cause = signal != 0 ? fmt::format("the launcher was ended by signal {} ({})", signal, strsignal(signal))
                               : fmt::format("exit code {} and no message", end_.code);
    const LostRank named = lost_rank_of(end_.cause);
    end_.rank = named.rank >= 0 ? named.rank : lost_;
    end_.host = !named.host.empty() ? named.host : end_.rank >= 0 ? host_name() : "";
  }

  const SupervisedJob& job_;
  const EndingSignals& signals_;
  FlightKeeper keeper_;
  Pipe err_;
  pid_t child_;
  JobEnd end_;
  ErrorLines errors_;
  int lost_ = -1, wishes_ = 0;
  Clock::time_point last_wish_ = {};
  StandstillWatch watch_{keeper_};
};

}  // namespace

LostRank lost_rank_of(const std::string& message) {
  constexpr std::string_view kRank = "process rank ", kNode = " on node ";
  const size_t at = message.find(kRank);
  if (at == std::string::npos) return {};
  LostRank lost{.rank = std::atoi(message.c_str() + at + kRank.size()), .host = {}};
  if (const size_t node = message.find(kNode, at); node != std::string::npos) {
    const std::string rest = message.substr(node + kNode.size());
    lost.host = rest.substr(0, rest.find(' '));
  }
  return lost;
}

JobEnd run_supervised(const SupervisedJob& job, const EndingSignals& signals) {
  return Attendance(job, signals).until_end();
}

}  // namespace nought
