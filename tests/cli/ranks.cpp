// A program of several ranks for the launcher's tests: test_cli_ranks BEHAVIOUR --ranks N.
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <omp.h>
#include <unistd.h>

#include "nought/base/error.h"
#include "nought/cli/failure.h"
#include "nought/cli/launch.h"
#include "nought/cli/openmp_waiting.h"
#include "nought/cli/standard_streams.h"
#include "nought/cli/stop_signals.h"
#include "nought/comm/mesh.h"
#include "nought/io/files.h"
#include "nought/io/mapped_file.h"

namespace {

using nought::Communicator;
using nought::Context;

/// Steps of a tenth of a second until somebody asks one of the ranks to stop. Returns that signal.
int work_until_asked(Communicator& world, const Context& context) {
  const nought::StopSignals signals(/*announce=*/world.rank() == 0);
  if (world.rank() == 0) fmt::print("begins\n"), std::fflush(stdout);
  for (std::array<double, 1> asked{};;) {
    usleep(100'000);
    asked[0] = nought::StopSignals::asked();
    nought::all_reduce_values(world, context, asked, nought::ReduceOp::max);
    if (asked[0] == 0) continue;
    fmt::print("rank {} stops\n", world.rank()), std::fflush(stdout);
    return static_cast<int>(asked[0]);
  }
}

/// Reads a file that has become shorter since it was mapped.
void lose_page() {
  const std::filesystem::path path = "lost.tokens";
  std::ofstream(path) << std::string(1 << 20, 'x');
  const nought::MappedFile file(path);
  std::filesystem::resize_file(path, 4096);
  fmt::print("byte {}\n", static_cast<int>(file.bytes()[4095])), std::fflush(stdout);  // which is there
  fmt::print("byte {}\n", static_cast<int>(file.bytes()[1 << 19]));
}

/// The exit code.
int behave(const std::string& behaviour, Communicator& world, const Context& context) {
  const bool last = world.rank() == world.size() - 1;
  if (behaviour == "sum") {
    const nought::Tensor one =
        nought::Tensor::of<float>(*context.memory, {1}, std::vector<float>{static_cast<float>(world.rank() + 1)});
    world.all_reduce(one).wait();
    const char* waiting = std::getenv(nought::kSpinVariable);
    const std::string line = fmt::format("rank {} of {} on {}: sum {}, {} threads, terminal {}, waits {}\n",
                                         world.rank(), world.size(), world.backend(), one.item(), omp_get_max_threads(),
                                         nought::stdout_columns(), waiting != nullptr ? waiting : "as libgomp does");
    std::fputs(line.c_str(), stdout);
  }
  if (behaviour == "all_fail") nought::fail<nought::IoError>("weights.safetensors is missing");
  if (behaviour == "last_fails" && last) nought::fail<nought::IoError>("the disk of this rank is full");
  if (behaviour == "last_exits" && last) _exit(3);
  if (behaviour == "last_killed" && last) raise(SIGKILL);
  if (behaviour == "lose_page" && last) lose_page();
  for (; behaviour == "talk"; usleep(10'000)) {
    if (world.rank() == 0) fmt::print("talk\n"), nought::flush_printed(stdout);
  }
  if (behaviour == "sleep") sleep(100);
  if (behaviour == "finish_step") return nought::exit_code_of(work_until_asked(world, context));
  if (behaviour == "hang") {  // finishes no step, whoever asks
    const nought::StopSignals signals(/*announce=*/world.rank() == 0);
    if (world.rank() == 0) fmt::print("begins\n"), std::fflush(stdout);
    for (;;) sleep(100);
  }
  world.barrier().wait();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  nought::open_missing_streams();
  nought::catch_lost_pages();
  nought::Invocation invocation{{argv + 1, argv + argc}, {}};
  CLI::App app;
  std::string behaviour;
  nought::LaunchOptions options;
  app.add_option("behaviour", behaviour);
  nought::add_launch_options(app, options);
  CLI11_PARSE(app, argc, argv);
  try {
    const auto validate = [&] {
      nought::require<nought::ConfigError>(behaviour != "invalid", "this input is invalid");
    };
    options.finishes_step = behaviour == "finish_step" || behaviour == "hang";
    int code = 0;
    const int launched =
        nought::launch(invocation, options, validate,
                       [&](Communicator& world, const Context& context) { code = behave(behaviour, world, context); });
    return launched != 0 ? launched : code;
  } catch (...) {
    nought::print_error(nought::describe(std::current_exception()));
    return 1;
  }
}
