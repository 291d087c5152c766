// The program: parses the command line, runs the chosen subcommand, and turns every failure into one line and an exit
// code: 1 for an error, 2 for a command line that makes no sense.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "nought/cli/commands.h"
#include "nought/cli/failure.h"
#include "nought/cli/help_formatter.h"
#include "nought/cli/launch_job.h"
#include "nought/cli/standard_streams.h"
#include "nought/cli/trainer_flags.h"
#include "nought/cli/version.h"
#ifdef NOUGHT_HAS_CUDA
#include "nought/cuda/backend/kernels.h"
#endif
#include "nought/io/files.h"

namespace {

constexpr int kUsageError = 2;

const char* const kFooter =
    "\nExamples:\n"
    "  nought train examples/quickstart.json --ranks 2\n"
    "  nought info\n"
    "  nought train --help";

int run(int argc, char** argv) {
  nought::Invocation invocation{.arguments = {argv + 1, argv + argc}, .action = {}};
#ifdef NOUGHT_HAS_CUDA
  invocation.on_gpu = nought::cuda::context_of_gpu;
#endif
  CLI::App app("Trains and fine-tunes language models with zero redundancy, and generates text with them.", "nought");
  app.set_version_flag("--version", "nought " + nought::version());
  app.footer(kFooter);
  app.formatter(std::make_shared<nought::HelpFormatter>(nought::stdout_columns()));
  nought::add_commands(app, invocation);

  try {
    std::vector<std::string> arguments = nought::with_trainer_flags(app, invocation.arguments);
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
    app.parse(std::move(arguments));
  } catch (const CLI::Success& success) {  // --help, --version
    const std::vector<std::string> unknown = app.remaining(true);
    if (unknown.empty() || unknown.front().starts_with('-')) return app.exit(success);
    nought::print_error(nought::usage_message(app, success));  // help of what is not there
    return kUsageError;
  } catch (const CLI::ParseError& error) {
    nought::print_error(nought::usage_message(app, error));
    return kUsageError;
  }
  if (!invocation.action) {
    nought::print_error("no command given; see `nought --help`");
    return kUsageError;
  }
  return invocation.action();
}

}  // namespace

int main(int argc, char** argv) {
  nought::open_missing_streams();
  nought::catch_failures_of_threads();
  nought::catch_lost_pages();
  std::signal(SIGXFSZ, SIG_IGN);  // `ulimit -f`: the write that exceeds it fails, and says which file it was
  try {
    const int code = run(argc, argv);
    nought::flush_printed(stdout);
    return code;
  } catch (...) {
    nought::print_error(nought::describe(std::current_exception()));
    return nought::code_of(std::current_exception());
  }
}
