// nought top: a run in the terminal, live.
#include <chrono>
#include <memory>
#include <thread>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "nought/base/error.h"
#include "nought/base/text.h"
#include "nought/cli/commands.h"
#include "nought/cli/launch_job.h"
#include "nought/report/live_view.h"

namespace nought {

namespace {

constexpr int kColumns = 80, kRows = 24;
constexpr int64_t kLastBytes = 1 << 20;  // metrics.jsonl's end: some thousand steps, whatever the run's length

/// The rows of the terminal at stdout; kRows if it does not tell.
int stdout_rows() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : kRows;
}

int run_top(const std::string& folder, bool plain, double every) {
  const bool live = !plain && ::isatty(STDOUT_FILENO) != 0;
  for (;;) {
    const RunFolder run = read_run_folder(folder, kLastBytes);
    const int columns = stdout_columns();
    const std::string view = live_view(run, columns > 0 ? columns : kColumns, live ? stdout_rows() - 1 : kRows);
    fmt::print("{}{}", live ? "\x1b[H\x1b[2J" : "", view);
    std::fflush(stdout);
    if (!live || run.state != RunState::running) return 0;
    std::this_thread::sleep_for(std::chrono::duration<double>(every));
  }
}

}  // namespace

void add_top(CLI::App& app, Invocation& invocation) {
  struct Options {
    std::string run, every = "2s";
    bool plain = false;
  };
  CLI::App* command = add_command(
      app, "top",
      "Shows a run in the terminal while it goes on: step, loss, speed, memory, slow ranks, what went wrong",
      {"nought top out", "nought top out --plain"});
  const auto options = std::make_shared<Options>();
  command->add_option("RUN_DIR", options->run, "The output folder of a run; its files are read and nothing else")
      ->required();
  command->add_option("--every", options->every, "How often the view is made again; default: 2s")->type_name("TIME");
  command->add_flag("--plain", options->plain,
                    "Print the view once, without control characters, as without a terminal");
  command->callback([&invocation, options] {
    invocation.action = [options] {
      return run_top(options->run, options->plain, parse_duration(options->every, "--every"));
    };
  });
}

}  // namespace nought
