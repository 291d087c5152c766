// nought report: runs as a page of HTML.
#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>

#include <fmt/format.h>

#include "nought/base/error.h"
#include "nought/base/text.h"
#include "nought/cli/commands.h"
#include "nought/io/atomic_file.h"
#include "nought/report/drawings.h"
#include "nought/report/page.h"

namespace nought {

namespace {

struct ReportCommand {
  std::vector<std::string> runs;
  std::string output, title, every, svg;

  std::filesystem::path file() const {
    return output.empty() ? std::filesystem::path(runs.front()) / "report.html" : std::filesystem::path(output);
  }
};

void write_charts(const std::vector<RunFolder>& runs, const std::filesystem::path& folder) {
  std::error_code ignored;
  std::filesystem::create_directory(folder, ignored);
  require<IoError>(std::filesystem::is_directory(folder), "--svg {}: cannot create the folder", folder.string());
  for (const DrawnChart& chart : draw_report(runs)) write_text_atomically(folder / chart.file, chart.svg);
}

/// Writes the page. Returns whether a run goes on.
bool write_report(const ReportCommand& command, double every) {
  const std::vector<RunFolder> runs = read_run_folders(command.runs);
  const bool goes_on =
      std::any_of(runs.begin(), runs.end(), [](const RunFolder& run) { return run.state == RunState::running; });
  write_text_atomically(command.file(), report_page(runs, {command.title, goes_on ? every : 0}));
  if (!command.svg.empty()) write_charts(runs, command.svg);
  return goes_on;
}

int run_report(const ReportCommand& command) {
  const double every = command.every.empty() ? 0 : parse_duration(command.every, "--every");
  const std::filesystem::path folder = std::filesystem::absolute(command.file()).parent_path();
  require<ConfigError>(std::filesystem::is_directory(folder), "{}: there is no folder {}", command.file().string(),
                       folder.string());
  const bool goes_on = write_report(command, every);
  fmt::print("wrote {}\n", command.file().string());
  if (!command.svg.empty()) fmt::print("wrote charts to {}\n", command.svg);
  std::fflush(stdout);
  if (every == 0 || !goes_on) return 0;
  do {
    std::this_thread::sleep_for(std::chrono::duration<double>(every));
  } while (write_report(command, every));
  return 0;
}

}  // namespace

void add_report(CLI::App& app, Invocation& invocation) {
  CLI::App* command =
      add_command(app, "report", "Writes a page of HTML with what runs did: curves, memory, traffic, samples, settings",
                  {"nought report out", "nought report out other -o both.html", "nought report out --every 10s",
                   "nought report out --svg charts"});
  const auto options = std::make_shared<ReportCommand>();
  command->add_option("RUN_DIR", options->runs, "The output folders of one run or more, which are overlaid")
      ->required();
  command->add_option("-o,--output", options->output, "The page; default: report.html in the first RUN_DIR")
      ->type_name("FILE.html");
  command->add_option("--title", options->title, "Its title; default: the names of the runs")->type_name("TITLE");
  command
      ->add_option(
          "--every", options->every,
          "Write it again every so often while a run goes on; an open page loads itself again and keeps its view")
      ->type_name("TIME");
  command->add_option("--svg", options->svg, "Write every chart as a file into this folder, too")->type_name("DIR");
  command->callback([&invocation, options] { invocation.action = [options] { return run_report(*options); }; });
}

}  // namespace nought
