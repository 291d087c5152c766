// nought compare: what differs between runs.
#include "nought/report/compare.h"

#include <memory>

#include <fmt/format.h>

#include "nought/cli/commands.h"
#include "nought/cli/launch_job.h"

namespace nought {

void add_compare(CLI::App& app, Invocation& invocation) {
  struct Options {
    std::vector<std::string> runs;
    bool json = false;
  };
  CLI::App* command = add_command(app, "compare",
                                  "Shows what differs between runs: settings, losses, speed, memory; exits with 1 if "
                                  "a setting or a loss does",
                                  {"nought compare out other", "nought compare out other --json"});
  const auto options = std::make_shared<Options>();
  command->add_option("RUN_DIR", options->runs, "The output folders of two runs or more; the first is compared with")
      ->required();
  command->add_flag("--json", options->json, "Print one JSON object");
  command->callback([&invocation, options] {
    invocation.action = [options] {
      const Comparison comparison = compare_runs(read_run_folders(options->runs));
      fmt::print("{}", options->json ? to_json(comparison).dump(2) + "\n" : to_text(comparison, stdout_columns()));
      return comparison.differs() ? 1 : 0;
    };
  });
}

}  // namespace nought
