// A program of several ranks for the launcher's tests: test_cli_ranks BEHAVIOUR --ranks N.
#include <csignal>
#include <cstdio>

#include <fmt/format.h>
#include <omp.h>
#include <unistd.h>

#include "nought/base/error.h"
#include "nought/cli/failure.h"
#include "nought/cli/launch.h"

namespace {

using nought::Communicator;
using nought::Context;

void behave(const std::string& behaviour, Communicator& world, const Context& context) {
  const bool last = world.rank() == world.size() - 1;
  if (behaviour == "sum") {
    const nought::Tensor one =
        nought::Tensor::of<float>(*context.memory, {1}, std::vector<float>{static_cast<float>(world.rank() + 1)});
    world.all_reduce(one).wait();
    const std::string line =
        fmt::format("rank {} of {} on {}: sum {}, {} threads, terminal {}\n", world.rank(), world.size(),
                    world.backend(), one.item(), omp_get_max_threads(), nought::stdout_columns());
    std::fputs(line.c_str(), stdout);
  }
  if (behaviour == "all_fail") nought::fail<nought::IoError>("weights.safetensors is missing");
  if (behaviour == "last_fails" && last) nought::fail<nought::IoError>("the disk of this rank is full");
  if (behaviour == "last_exits" && last) _exit(3);
  if (behaviour == "last_killed" && last) raise(SIGKILL);
  if (behaviour == "sleep") sleep(100);
  world.barrier().wait();
}

}  // namespace

int main(int argc, char** argv) {
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
    return nought::launch(invocation, options, validate,
                          [&](Communicator& world, const Context& context) { behave(behaviour, world, context); });
  } catch (...) {
    nought::print_error(nought::describe(std::current_exception()));
    return 1;
  }
}
