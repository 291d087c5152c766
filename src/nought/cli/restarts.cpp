#include "nought/cli/restarts.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/base/open_file.h"
#include "nought/base/text.h"
#include "nought/base/timing.h"
#include "nought/checkpoint/checkpoint_folders.h"
#include "nought/cli/failure.h"
#include "nought/cli/restart_policy.h"
#include "nought/cli/stop_signals.h"
#include "nought/cli/supervised_job.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

constexpr const char* kRestartLog = "restarts.jsonl";
constexpr std::chrono::seconds kBeyondTimeout{5};  // in which a rank tells of a collective that timed out
constexpr int kUsageError = 2;
constexpr int kFailedStarts = 2;  // so many in a row, and the run gets less ranks

/// The checkpoints of this run among those of its folder, of which others may have been there before.
class OwnCheckpoints {
 public:
  struct Last {
    int64_t step = 0;
    double time = 0;  // when it was complete, in seconds since 1970
  };

  explicit OwnCheckpoints(fs::path folder) : folder_(std::move(folder)) {
    for (const fs::path& path : list_checkpoints(folder_)) before_.insert({path, stat_of(path).st_ino});
  }
  std::optional<Last> last() const {
    const std::vector<fs::path> all = list_checkpoints(folder_);
    for (auto path = all.rbegin(); path != all.rend(); ++path) {
      const struct stat found = stat_of(*path);
      const auto earlier = before_.find(*path);
      if (earlier != before_.end() && earlier->second == found.st_ino) continue;
      return Last{checkpoint_step(*path).value_or(0),
                  static_cast<double>(found.st_mtim.tv_sec) + 1e-9 * static_cast<double>(found.st_mtim.tv_nsec)};
    }
    return std::nullopt;
  }

 private:
  static struct stat stat_of(const fs::path& path) {
    struct stat found {};
    ::stat(path.c_str(), &found);
    return found;
  }

  fs::path folder_;
  std::map<fs::path, ino_t> before_;
};

/// Appends a line to restarts.jsonl. The run goes on where that is impossible.
void log_restart(const fs::path& folder, const OrderedJson& record) {
  std::error_code ignored;
  fs::create_directories(folder, ignored);
  const int file = open((folder / kRestartLog).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0) return;
  write_all(file, record.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
  close(file);
}

/// Sleeps. Returns the signal that ends the run meanwhile, or 0.
int pause_for(double seconds, const EndingSignals& signals) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < until) {
    pollfd event{signals.fd(), POLLIN, 0};
    poll(&event, 1, 50);
    if (const int signal = signals.take(); signal != 0 && signal != SIGUSR2) return signal;
  }
  return 0;
}

bool is_wish(const JobEnd& end) {
  return end.wish != 0 || end.code == exit_code_of(SIGINT) || end.code == exit_code_of(SIGTERM) ||
         end.code == exit_code_of(SIGUSR1);
}

void say(const std::string& line) { fmt::print(stderr, "nought: {}\n", with_short_values(line)); }

class Supervisor {
 public:
  Supervisor(const RestartOptions& options, const SupervisedRun& run)
      : run_(run),
        min_ranks_(static_cast<int>(options.min_ranks.value_or(run.ranks))),
        policy_(*options.restarts, parse_duration(options.delay, "--restart-delay"), run.first_step),
        checkpoints_(run.output_dir),
        usual_(choose(run.ranks)),
        ranks_(usual_) {
    if (ranks_.ranks != run_.ranks)
      say(fmt::format("{} ranks do not make the global batch of {}: the run has {}", run_.ranks,
                      run_.elastic.train_batch, ranks_.ranks));
  }

  int run_to_end() {
    for (;;) {
      const std::optional<OwnCheckpoints::Last> before = checkpoints_.last();
      const double begin = seconds_since_1970();
      const JobEnd end = run_supervised({.arguments = run_.arguments(before.has_value(), ranks_),
                                         .ranks = ranks_.ranks,
                                         .patience = run_.timeout + kBeyondTimeout,
                                         .all_here = run_.all_here},
                                        signals_);
      if (!end.hung && (end.code == 0 || is_wish(end) || end.code == kUsageError)) return end.code;
      if (end.code == kRefusedCode) return 1;
      if (const std::optional<int> code = restart_after(end, begin)) return *code;
    }
  }

 private:
  ElasticRanks::Choice choose(int most) const {
    const ElasticRanks::Choice* found = run_.elastic.largest(most);
    if (found == nullptr || found->ranks < min_ranks_) return {most, {}};
    return *found;
  }

  /// Says and notes the failure, and waits for the restart. Returns the exit code if there is none.
  std::optional<int> restart_after(const JobEnd& end, double begin) {
    const std::optional<OwnCheckpoints::Last> last = checkpoints_.last();
    const int64_t kept = last ? last->step : run_.first_step;
    const int64_t step = std::max(end.step, kept + 1);  // a step whose checkpoint is complete is made
    const std::optional<double> pause = policy_.after({step, kept, end.cause});
    const double now = seconds_since_1970();
    note(end, {{"step", step},
               {"checkpoint", kept},
               {"steps_lost", step - 1 - kept},
               {"seconds_lost", now - std::max(begin, last ? last->time : 0) + pause.value_or(0)},
               {"ranks", ranks_.ranks},
               {"restarts", pause.has_value()}});
    if (!pause) {
      print_error(policy_.give_up());
      return 1;
    }
    change_ranks(end);
    say(fmt::format("step {} failed: {}; restart {} of {} from {} in {:.3g} s", step, end.cause, policy_.restart(),
                    policy_.restart() + policy_.left(), kept > 0 ? fmt::format("checkpoint-{}", kept) : "the start",
                    *pause));
    const int signal = pause_for(*pause, signals_);
    return signal == 0 ? std::nullopt : std::optional(exit_code_of(signal));
  }

  void note(const JobEnd& end, const OrderedJson& more) const {
    OrderedJson record{
        {"time", seconds_since_1970()}, {"cause", end.cause}, {"exit_code", end.code}, {"hung", end.hung}};
    record["host"] = end.host.empty() ? OrderedJson() : OrderedJson(end.host);
    record["rank"] = end.rank < 0 ? OrderedJson() : OrderedJson(end.rank);
    record.update(more);
    log_restart(run_.output_dir, record);
  }

  /// Less ranks where so many do not come to their first step; all of them again after a checkpoint.
  void change_ranks(const JobEnd& end) {
    failed_starts_ = end.step > 0 ? 0 : failed_starts_ + 1;
    if (end.step > 0 && policy_.restart() == 1) ranks_ = usual_;
    if (failed_starts_ < kFailedStarts) return;
    const ElasticRanks::Choice less = choose(ranks_.ranks - 1);
    if (less.ranks < min_ranks_ || run_.elastic.choices.empty()) return;
    failed_starts_ = 0;
    say(fmt::format("{} ranks did not come to a step {} times: the run goes on with {}", ranks_.ranks, kFailedStarts,
                    less.ranks));
    ranks_ = less;
  }

  const SupervisedRun& run_;
  int min_ranks_;
  RestartPolicy policy_;
  OwnCheckpoints checkpoints_;
  ElasticRanks::Choice usual_, ranks_;
  int failed_starts_ = 0;
  EndingSignals signals_;
};

/// Orphans of the run become children of this process, which can end them.
class Reaper {
 public:
  Reaper() { prctl(PR_SET_CHILD_SUBREAPER, 1); }
  ~Reaper() { prctl(PR_SET_CHILD_SUBREAPER, 0); }
  Reaper(const Reaper&) = delete;
  Reaper& operator=(const Reaper&) = delete;
};

}  // namespace

void add_restart_options(CLI::App& command, RestartOptions& options) {
  CLI::Option* restarts =
      command
          .add_option("--restarts", options.restarts,
                      "Start the run again from its last checkpoint when it fails or hangs: at most N times without a "
                      "new checkpoint (docs/cluster.md)")
          ->type_name("N");
  command
      .add_option("--min-ranks", options.min_ranks,
                  "With --restarts: the fewest ranks to go on with, at the same global batch, where --ranks do not "
                  "come up")
      ->type_name("K")
      ->needs(restarts);
  command
      .add_option("--restart-delay", options.delay,
                  "The pause before the first restart; it doubles with each further one")
      ->type_name("TIME")
      ->capture_default_str()
      ->needs(restarts);
}

void check_restarts(const RestartOptions& options, int64_t ranks) {
  require<ConfigError>(*options.restarts >= 0, "--restarts must be at least 0, got {}", *options.restarts);
  parse_duration(options.delay, "--restart-delay");
  if (!options.min_ranks) return;
  require<ConfigError>(*options.min_ranks >= 1, "--min-ranks must be at least 1, got {}", *options.min_ranks);
  require<ConfigError>(*options.min_ranks <= ranks, "--min-ranks {} is above --ranks {}", *options.min_ranks, ranks);
}

int supervise(const RestartOptions& options, const SupervisedRun& run) {
  const Reaper reaper;
  return Supervisor(options, run).run_to_end();
}

}  // namespace nought
