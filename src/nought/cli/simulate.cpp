// nought simulate: the time of a step on a cluster that need not be here.
#include <memory>

#include "nought/cli/commands.h"
#include "nought/simulate/rows.h"

namespace nought {

namespace {

struct SimulateOptions {
  std::string rows, constants;
  bool json = false;
};

int run_simulate(const SimulateOptions& options) {
  auto fitted = fitted_constants();
  if (!options.constants.empty()) fitted = read_fitted(read_json_file(options.constants).dump(), options.constants);
  const std::vector<SimulatedRow> rows = simulate_rows(read_json_file(options.rows), options.rows, fitted);
  if (options.json) {
    fmt::print("{}\n", to_json(rows).dump(2));
    return 0;
  }
  for (const SimulatedRow& row : rows) fmt::print("{:>10.4g} s  {}\n", row.step.seconds, row.id);
  return 0;
}

}  // namespace

void add_simulate(CLI::App& app, Invocation& invocation) {
  CLI::App* command = add_command(app, "simulate", "Predicts the time of a step on a cluster of thousands of GPUs",
                                  {"nought simulate --rows published.json --json"});
  const auto options = std::make_shared<SimulateOptions>();
  command->add_option("--rows", options->rows, "Step times of this file's rows (docs/simulator.md)")
      ->type_name("FILE")
      ->required();
  command->add_option("--constants", options->constants, "Constants in place of those that are built in")
      ->type_name("FILE");
  command->add_flag("--json", options->json, "Print one JSON object");
  command->callback([&invocation, options] { invocation.action = [options] { return run_simulate(*options); }; });
}

}  // namespace nought
