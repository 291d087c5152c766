// nought simulate: the time of a step on a cluster that need not be here.
#include <cmath>
#include <memory>
#include <optional>

#include "nought/base/text.h"
#include "nought/cli/commands.h"
#include "nought/cli/planned_run.h"
#include "nought/plan/predict.h"
#include "nought/simulate/from_plan.h"
#include "nought/simulate/report.h"
#include "nought/simulate/rows.h"
#include "nought/train/trainer.h"
#include "nought/weights/model_source.h"

namespace nought {

namespace {

struct SimulateOptions {
  std::string run_file, rows, constants, cluster, software = kSimulatedSoftware, tokens;
  std::vector<std::string> overrides;
  std::optional<int64_t> ranks;
  double price = 0;
  int64_t top = 10;
  bool json = false, layouts = false;
};

std::map<std::string, FittedConstants> constants_of(const SimulateOptions& options) {
  if (options.constants.empty()) return fitted_constants();
  return read_fitted(read_json_file(options.constants).dump(), options.constants);
}

int print_rows(const SimulateOptions& options) {
  const std::vector<SimulatedRow> rows =
      simulate_rows(read_json_file(options.rows), options.rows, constants_of(options));
  if (options.json) {
    fmt::print("{}\n", to_json(rows).dump(2));
    return 0;
  }
  for (const SimulatedRow& row : rows) fmt::print("{:>10.4g} s  {}\n", row.step.seconds, row.id);
  return 0;
}

void check_options(const SimulateOptions& options) {
  require<ConfigError>(!options.run_file.empty(), "simulate: expected RUN.json, or --rows FILE");
  require<ConfigError>(!options.cluster.empty(), "--cluster is missing: expected {} or a JSON file of rates",
                       cluster_names());
  require<ConfigError>(options.ranks.value_or(1) >= 1 && options.ranks.value_or(1) <= 1'000'000,
                       "--ranks must be 1 to 1000000, got {}", options.ranks.value_or(1));
  require<ConfigError>(options.top >= 1 && options.top <= 1000, "--top must be 1 to 1000, got {}", options.top);
  require<ConfigError>(std::isfinite(options.price) && options.price >= 0, "--price must be at least 0, got {}",
                       options.price);
}

/// The ranks of --ranks, else of the cluster's hosts, else one host's.
int ranks_on(const SimulateOptions& options, const Cluster& cluster) {
  const int all = cluster.hosts * cluster.ranks_per_host;
  const auto ranks = static_cast<int>(options.ranks.value_or(all > 0 ? all : cluster.ranks_per_host));
  require<ConfigError>(all == 0 || ranks <= all, "--ranks {}: {} has {} hosts of {} ranks", ranks, cluster.name,
                       cluster.hosts, cluster.ranks_per_host);
  return ranks;
}

int run_simulate(const SimulateOptions& options) {
  if (!options.rows.empty()) return print_rows(options);
  check_options(options);
  const Cluster cluster = cluster_of(options.cluster);
  const auto constants = constants_of(options);
  const FittedConstants& fitted = constants.at(generation_of(cluster.chip, cluster.name));
  const int ranks = ranks_on(options, cluster);
  TrainingGoal goal{.price = options.price};
  if (!options.tokens.empty()) goal.tokens = parse_tokens(options.tokens);
  const RunPlan plan = with_model_folder(resolve(load_planned_run(options.run_file, options.overrides, true), ranks));
  require<ConfigError>(!plan.model_dir.empty() || !plan.model_config.is_null(),
                       "{}: model is missing: expected a Hugging Face folder or the content of its config.json",
                       options.run_file);
  const SimulatedRun run = simulated_run(model_config_of(plan), layout_of(plan), software_of(options.software));
  if (options.layouts) {
    const LayoutRanking ranking = rank_layouts(run, cluster, fitted, ranks, static_cast<int>(options.top));
    fmt::print("{}\n", options.json ? to_json(ranking, cluster, goal).dump(2) : to_text(ranking, cluster, goal));
    return 0;
  }
  const RankedLayout layout{run, simulate_step(run, cluster, fitted), simulate_memory(run)};
  fmt::print("{}\n", options.json ? to_json(layout, cluster, goal).dump(2) : to_text(layout, cluster, goal));
  return 0;
}

}  // namespace

void add_simulate(CLI::App& app, Invocation& invocation) {
  CLI::App* command = add_command(
      app, "simulate", "Predicts the time of a step on a cluster of thousands of GPUs that need not be here",
      {"nought simulate run.json --cluster h100x8 --ranks 1024 --tokens 15T --price 2.5",
       "nought simulate llama-405b/config.json --cluster h100x8 --ranks 16384 --layouts --set data.seq_length=8192",
       "nought simulate --rows published.json --json"});
  const auto options = std::make_shared<SimulateOptions>();
  command->add_option("RUN.json", options->run_file,
                      "A run, or a model alone: a Hugging Face folder, config.json or a GGUF file");
  add_override_option(*command, options->overrides, "data.seq_length=8192");
  command->add_option("--cluster", options->cluster, cluster_names() + ", or a JSON file of rates (docs/simulator.md)")
      ->type_name("NAME|FILE");
  command->add_option("--ranks", options->ranks, "Number of GPUs")->type_name("N");
  command->add_flag("--layouts", options->layouts,
                    "Every layout at the run's global batch, the fastest first, with the reasons of what is left out");
  command->add_option("--top", options->top, "How many layouts are shown")->type_name("K");
  command->add_option("--tokens", options->tokens, "Tokens of all of training: days are printed")->type_name("15T");
  command->add_option("--price", options->price, "With --tokens: of an hour of a GPU; the cost is printed")
      ->type_name("2.5");
  command->add_option("--software", options->software,
                      "Whose overlap and kernels: megatron-core, fsdp2, fsdp, deepspeed, megatron-2023, megatron-2021");
  command->add_option("--rows", options->rows, "Step times of this file's rows, in place of RUN.json")
      ->type_name("FILE");
  command->add_option("--constants", options->constants, "Constants in place of those that are built in")
      ->type_name("FILE");
  command->add_flag("--json", options->json, "Print one JSON object");
  command->callback([&invocation, options] { invocation.action = [options] { return run_simulate(*options); }; });
}

}  // namespace nought
