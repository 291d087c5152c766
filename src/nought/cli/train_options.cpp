#include "nought/cli/train_options.h"

#include <utility>

#include <fmt/format.h>

#include "nought/base/json.h"
#include "nought/base/open_file.h"
#include "nought/cli/device.h"
#include "nought/cli/version.h"
#include "nought/io/atomic_file.h"
#include "nought/weights/model_source.h"

namespace nought {

namespace {

/// In training.output_dir: the steps that --within has chosen.
constexpr const char* kChosenSteps = "chosen_steps.json";

std::optional<int64_t> chosen_steps(const std::filesystem::path& folder) {
  const auto text = bytes_if_there(folder / kChosenSteps);
  if (!text) return std::nullopt;
  const Json json = parse_json(*text, (folder / kChosenSteps).string());
  const auto steps = json.is_object() ? json.find("max_steps") : json.end();
  require<IoError>(json.is_object() && steps != json.end() && steps->is_number_integer(),
                   "{}: expected {{\"max_steps\": N}}", (folder / kChosenSteps).string());
  return steps->get<int64_t>();
}

}  // namespace

void keep_chosen_steps(const std::filesystem::path& folder, std::optional<int64_t> steps) {
  std::error_code ignored;
  if (steps) {
    write_text_atomically(folder / kChosenSteps, fmt::format("{{\"max_steps\": {}}}\n", *steps));
  } else {
    std::filesystem::remove(folder / kChosenSteps, ignored);
  }
}

RunConfig TrainOptions::config() const {
  const bool on_gpu = names_gpu(launch.device);
  RunConfig config = load_run_config(run_file, overrides, on_gpu);
  // A run that began with --within goes on to the steps that were chosen then.
  if (const auto steps = config.training.resumes() ? chosen_steps(config.training.output_dir.value) : std::nullopt) {
    std::vector<std::string> all{fmt::format("training.max_steps={}", *steps)};
    all.insert(all.end(), overrides.begin(), overrides.end());
    config = load_run_config(run_file, all, on_gpu);
  }
  return config;
}

Json TrainOptions::settings() const {
  std::vector<std::string> warnings;
  Json json = read_run_file(run_file, warnings);
  for (const std::string& text : overrides) {
    const Override override = parse_override(text);
    // A section that RUN.json names as a file: what is put into it stands beside the file's name.
    if (override.path.starts_with("deepspeed.") && json.contains("deepspeed") && json["deepspeed"].is_string())
      json["deepspeed"] = {{"file", json["deepspeed"]}};
    apply_override(json, override);
  }
  return json;
}

StartMode TrainOptions::mode() const {
  if (rewind) return StartMode::rewind;
  if (config().training.resumes()) return overwrite ? StartMode::resume_overwrite : StartMode::resume;
  return overwrite ? StartMode::overwrite : StartMode::fresh;
}

RunPlan TrainOptions::plan(int world_size) const {
  RunPlan plan = resolve_run(config(), world_size, mode());
  plan.program = version();
  plan.trace_file = trace_file;
  return plan;
}

PastedRun TrainOptions::pasted(const RunPlan& plan) const {
  const auto run_with = [*this, world_size = plan.layout.ranks](const std::vector<std::string>& settings) {
    TrainOptions changed = *this;
    changed.overrides.insert(changed.overrides.end(), settings.begin(), settings.end());
    return with_model_folder(changed.plan(world_size));
  };
  return {run_with, plan.output_dir + "/offload"};
}

std::vector<std::string> TrainOptions::arguments() const {
  std::vector<std::string> words{"train", run_file};
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {name, value});
  };
  for (const std::string& setting : overrides) add("--set", setting);
  if (launch.ranks) add("--ranks", std::to_string(*launch.ranks));
  add("--hostfile", launch.hostfile);
  add("--include", launch.include);
  add("--exclude", launch.exclude);
  add("--device", launch.device);
  add("--collectives", launch.collectives);
  add("--trace", trace_file);
  add("--within", within);
  if (!within.empty()) add("--min-steps", std::to_string(min_steps));
  if (overwrite) words.emplace_back("--overwrite");
  if (rewind) add("--rewind", std::to_string(*rewind));
  if (quiet) words.emplace_back("--quiet");
  return words;
}

StepBudget step_budget(const TrainOptions& options, const RunPlan& plan) {
  require<ConfigError>(
      !resumes(options.mode()),
      "--within is for a run that begins; with --resume it goes on to the steps that were chosen then, or to "
      "training.max_steps");
  require<ConfigError>(plan.max_steps > 0, "--within needs training.max_steps, the most steps that it may choose");
  require<ConfigError>(1 <= options.min_steps && options.min_steps <= plan.max_steps,
                       "--min-steps must be 1 to training.max_steps = {}, got {}", plan.max_steps, options.min_steps);
  return {.seconds = parse_duration(options.within, "--within"),
          .fewest = options.min_steps,
          .most = plan.max_steps,
          .tokens_per_step = plan.layout.tokens_per_step()};
}

ResumeOption::ResumeOption(CLI::App& command, TrainOptions& options) : options_(options) {
  option_ = command
                .add_option("--resume", value_,
                            "Continue the last checkpoint of training.output_dir, or the one of this step or path")
                ->type_name("[PATH|STEP]")
                ->expected(0, 1);
}

void ResumeOption::apply() {
  // `--resume run.json` means the last checkpoint of run.json.
  if (options_.run_file.empty() && !value_.empty() && !std::filesystem::is_directory(value_))
    options_.run_file = std::exchange(value_, "");
  if (options_.run_file.empty()) throw CLI::RequiredError("RUN.json");
  // The formatter of helps counts no columns for "Excludes" behind a name.
  if (options_.rewind && options_.overwrite) throw CLI::ExcludesError("--rewind", "--overwrite");
  if (options_.rewind && option_->count() > 0) throw CLI::ExcludesError("--rewind", "--resume");
  if (options_.rewind)
    options_.overrides.push_back(fmt::format("training.resume_from_checkpoint={}", *options_.rewind));
  if (option_->count() == 0) return;
  const bool step = !value_.empty() && value_.find_first_not_of("0123456789") == std::string::npos;
  options_.overrides.push_back("training.resume_from_checkpoint=" + (value_.empty() ? "true"
                                                                     : step         ? value_
                                                                                    : Json(value_).dump()));
}

std::shared_ptr<ResumeOption> add_run_options(CLI::App& command, TrainOptions& options) {
  add_override_option(command, options.overrides, "training.max_steps=5");
  command.add_option("RUN.json", options.run_file, "The run: model, data, training and deepspeed sections");
  command.add_flag(
      "--overwrite", options.overwrite,
      "Remove the checkpoints of an earlier run in training.output_dir; with --resume STEP those after it");
  auto resume = std::make_shared<ResumeOption>(command, options);
  command
      .add_option("--rewind", options.rewind,
                  "Go back to the checkpoint of this step and train on from there; later checkpoints are moved to "
                  "training.output_dir/rewound-N, later lines of metrics.jsonl to metrics.discarded.jsonl")
      ->type_name("STEP")
      ->check(CLI::NonNegativeNumber);
  return resume;
}

}  // namespace nought
