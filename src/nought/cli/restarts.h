// nought train --restarts: a supervisor, outside of MPI, that starts a run again which fails.
//
// Design goals: whatever ends a run but its own end, a signal of the user or a refused config, the run goes on from its
// last complete checkpoint, to the same bits; no process is left behind, whatever is killed or stopped. A run that does
// not get on is ended too. Non-goals: hosts that come and go; ranks that continue without one of them (Open MPI 4.1
// has no ULFM).
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "nought/config/elastic_ranks.h"

namespace nought {

struct RestartOptions {
  std::optional<int64_t> restarts;   // not given: nothing is supervised
  std::optional<int64_t> min_ranks;  // not given: the number of ranks stays
  std::string delay = "5s";          // before the first restart
};

/// Adds --restarts, --min-ranks and --restart-delay.
void add_restart_options(CLI::App& command, RestartOptions& options);

/// What the supervisor has to know of the run.
struct SupervisedRun {
  std::filesystem::path output_dir = {};
  int ranks = 1;
  bool all_here = true;             // no rank is on another host
  std::chrono::seconds timeout{0};  // a run may stand still as long as a collective may take
  int64_t first_step = 0;           // updates that are made when it begins
  ElasticRanks elastic = {};        // the numbers of ranks that it may have, with --min-ranks
  /// The command line, without the program, that begins the run; or resumes it.
  std::function<std::vector<std::string>(bool resumes, const ElasticRanks::Choice& ranks)> arguments = {};
};

/// ConfigError for options that cannot be.
void check_restarts(const RestartOptions& options, int64_t ranks);

/// Supervises the run until it ends. Returns its exit code.
int supervise(const RestartOptions& options, const SupervisedRun& run);

}  // namespace nought
