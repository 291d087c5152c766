// nought trace: what the flight recorders of a run's ranks tell.
#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "nought/base/text.h"
#include "nought/cli/commands.h"
#include "nought/comm/flight_files.h"
#include "nought/comm/flight_report.h"

namespace nought {

namespace {

struct TraceOptions {
  std::vector<std::string> files;
  int64_t calls = 0;
};

std::string time_of(int64_t nanoseconds, int64_t origin) {
  return nanoseconds == 0
             ? "-"
             : fmt::format("{:+.3f}s", (static_cast<double>(nanoseconds) - static_cast<double>(origin)) * 1e-9);
}

/// The last calls of a rank, oldest first; times are those since the file was written.
void print_calls(const FlightSnapshot& rank, int64_t count) {
  const FlightHeader& header = rank.header;
  fmt::print("rank {}, {} calls in all\n", header.rank, header.calls);
  fmt::print("    {:>12} {:>12} {:>12}  call\n", "issued", "begun", "ended");
  const auto known = static_cast<int64_t>(rank.calls.size());
  for (int64_t i = std::max<int64_t>(0, known - count); i < known; ++i) {
    const FlightCall& call = rank.calls[static_cast<size_t>(i)];
    fmt::print("    {:>12} {:>12} {:>12}  {}{}\n", time_of(call.submitted, header.written),
               time_of(call.started, header.written), time_of(call.ended, header.written), describe_call(rank, call),
               call.failed ? ", failed" : "");
  }
}

int run_trace(const TraceOptions& options) {
  require<ConfigError>(options.calls >= 0, "--calls must be at least 0, got {}", options.calls);
  std::vector<FlightSnapshot> ranks;
  for (const std::string& file : options.files) {
    ranks.push_back(read_flight_file(file));
    for (size_t i = 0; i + 1 < ranks.size(); ++i)
      require<ConfigError>(ranks[i].header.rank != ranks.back().header.rank,
                           "{} and {} are both of rank {}: give one file of each rank of one run", options.files[i],
                           file, ranks.back().header.rank);
  }
  const FlightReport report = flight_report(ranks);
  for (const std::string& line : report.table) fmt::print("{}\n", line);
  if (report.findings.empty()) fmt::print("no call waits for a rank\n");
  for (const std::string& finding : report.findings) fmt::print("{}\n", finding);
  if (options.calls > 0)
    for (const FlightSnapshot& rank : ranks) print_calls(rank, options.calls);
  return 0;
}

}  // namespace

void add_trace(CLI::App& app, Invocation& invocation) {
  CLI::App* command = add_command(
      app, "trace", "Tells from the flight recorders of a run's ranks which rank was late or made another call",
      {"nought trace out/flight-recorder/*.flight", "nought trace out/flight-recorder/*.flight --calls 20"});
  const auto options = std::make_shared<TraceOptions>();
  command->add_option("FILES", options->files, "A file of each rank, as a time-out, a crash or SIGUSR2 leaves them")
      ->required();
  command->add_option("--calls", options->calls, "Show the last N calls of each rank, too")->type_name("N");
  command->callback([&invocation, options] { invocation.action = [options] { return run_trace(*options); }; });
}

}  // namespace nought
