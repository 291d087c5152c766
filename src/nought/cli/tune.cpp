// nought tune: short runs on this machine that find a faster configuration of the same training.
//
// Design goals: the global batch never changes; the run as it is given is trial 0, and the answer is never slower than
// it beyond noise; a trial that fails or hangs is a row with its message; what was measured is kept. Non-goals: tp, pp,
// cp and ep, which the user lays out (`nought simulate --layouts` ranks them).
#include <cmath>
#include <fstream>
#include <map>
#include <memory>

#include "nought/base/text.h"
#include "nought/cli/commands.h"
#include "nought/cli/tune_trial.h"
#include "nought/config/run_config.h"
#include "nought/config/run_plan.h"
#include "nought/io/append_file.h"
#include "nought/io/atomic_file.h"

namespace nought {

namespace {

struct TuneOptions {
  std::string run_file, time = "10m", results = "tune_results";
  std::vector<std::string> overrides;
  int64_t ranks = 1, steps = 8;
  bool resume = false;
};

using Settings = std::map<std::string, std::string>;  // by key

class Tuner {
 public:
  explicit Tuner(const TuneOptions& options);
  int tune();

 private:
  void try_micro_batches();
  /// Each of the values but that of the run.
  void try_values(const std::string& key, const std::vector<std::string>& values, std::string_view of_run);
  /// Measures the settings, unless they were, and keeps the fastest.
  void attempt(const Settings& settings);
  const TuneTrial& measured(const Settings& settings);
  void confirm();
  void report() const;
  bool over() const { return asked_ != 0 || std::chrono::steady_clock::now() > end_; }
  static std::vector<std::string> lines_of(const Settings& settings);

  const TuneOptions& options_;
  std::filesystem::path results_;
  RunPlan plan_;
  std::chrono::steady_clock::time_point end_;
  EndingSignals signals_;
  int asked_ = 0;
  std::vector<TuneTrial> trials_;
  std::unique_ptr<AppendFile> file_;
  Settings best_;
  double best_speed_ = 0;
};

Tuner::Tuner(const TuneOptions& options)
    : options_(options),
      results_(options.results),
      plan_(resolve(load_run_config(options.run_file, options.overrides), static_cast<int>(options.ranks))),
      end_(std::chrono::steady_clock::now() +
           std::chrono::milliseconds(static_cast<int64_t>(1000 * parse_duration(options.time, "--time")))) {
  const std::filesystem::path path = results_ / "trials.jsonl";
  std::string kept;
  if (std::ifstream file(path); file) {
    require<ConfigError>(options.resume, "{} has trials: --resume goes on with them, --results DIR keeps others apart",
                         results_.string());
    for (std::string line; std::getline(file, line);) {
      const Json json = Json::parse(line, nullptr, false);
      if (!json.is_object()) continue;
      trials_.push_back(TuneTrial::from(json));
      kept += line + "\n";
    }
  }
  std::filesystem::create_directories(results_);
  file_ = std::make_unique<AppendFile>(path, kept);
}

std::vector<std::string> Tuner::lines_of(const Settings& settings) {
  std::vector<std::string> lines;
  for (const auto& [key, value] : settings) lines.push_back(key + "=" + value);
  return lines;
}

const TuneTrial& Tuner::measured(const Settings& settings) {
  constexpr double kShare = 0.25;  // the part of all time that one trial may take
  TrialCommand command{.arguments = {"train", options_.run_file, "--ranks", std::to_string(options_.ranks)},
                       .folder = results_ / "trial",
                       .steps = options_.steps,
                       .limit = std::chrono::duration<double>(kShare * parse_duration(options_.time, "--time"))};
  for (const std::string& each : options_.overrides) {
    command.arguments.emplace_back("--set");
    command.arguments.push_back(each);
  }
  TuneTrial trial = run_trial(command, lines_of(settings), signals_, asked_);
  std::filesystem::remove_all(command.folder / "out");  // weights of a few steps
  if (asked_ != 0)
    trial.message = "stopped", trial.tokens_per_second = 0;
  else
    file_->append(trial.json().dump() + "\n");
  fmt::print("trial {:<3} {:>12}  {}\n", trials_.size(),
             trial.message.empty() ? format_count(trial.tokens_per_second) + " tok/s" : "failed",
             settings.empty() ? "as it is" : trial.key());
  if (!trial.message.empty()) fmt::print("          {}\n", trial.message);
  std::fflush(stdout);
  trials_.push_back(std::move(trial));
  return trials_.back();
}

void Tuner::attempt(const Settings& settings) {
  if (over() && !trials_.empty()) return;  // the start is measured in any case
  const std::vector<std::string> lines = lines_of(settings);
  const TuneTrial* trial = nullptr;
  for (const TuneTrial& each : trials_)
    if (each.settings == lines) trial = &each;
  if (trial == nullptr) trial = &measured(settings);
  if (trial->tokens_per_second > best_speed_) best_speed_ = trial->tokens_per_second, best_ = settings;
}

/// Every division of a rank's share of the batch into micro-batches.
void Tuner::try_micro_batches() {
  const int64_t share = plan_.layout.micro_batch * plan_.layout.accumulation;
  for (int64_t micro_batch = share; micro_batch >= 1; --micro_batch) {
    if (share % micro_batch != 0 || micro_batch == plan_.layout.micro_batch) continue;
    Settings settings = best_;
    settings["training.per_device_train_batch_size"] = std::to_string(micro_batch);
    settings["training.gradient_accumulation_steps"] = std::to_string(share / micro_batch);
    for (const char* key : {"train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size"})
      settings[fmt::format("deepspeed.{}", key)] = "auto";
    attempt(settings);
  }
}

void Tuner::try_values(const std::string& key, const std::vector<std::string>& values, std::string_view of_run) {
  const Settings from = best_;
  for (const std::string& value : values) {
    if (value == of_run) continue;
    Settings settings = from;
    settings[key] = value;
    attempt(settings);
  }
}

/// The start and the fastest again, in turn, until they differ by more than their noise. What does not is the start.
void Tuner::confirm() {
  if (best_.empty() || asked_ != 0 || trials_.front().tokens_per_second == 0) return;
  std::vector<double> start{trials_.front().tokens_per_second}, fastest{best_speed_};
  const auto mean = [](const std::vector<double>& of) {
    double sum = 0;
    for (const double each : of) sum += each;
    return sum / static_cast<double>(of.size());
  };
  const auto spread = [](const std::vector<double>& of) {
    const auto [least, most] = std::minmax_element(of.begin(), of.end());
    return (*most - *least) / 2;
  };
  constexpr size_t kMost = 4;
  const auto differ = [&] { return mean(fastest) - mean(start) > spread(start) + spread(fastest); };
  while (start.size() < 2 || (!differ() && start.size() < kMost)) {
    start.push_back(measured({}).tokens_per_second);
    if (asked_ != 0) return;
    fastest.push_back(measured(best_).tokens_per_second);
    if (asked_ != 0) return;
  }
  if (!differ()) best_.clear();
}

void Tuner::report() const {
  if (best_.empty()) {
    fmt::print("\n{}\n", best_speed_ > 0 ? "the run as it is: nothing was faster beyond noise"
                                         : "no trial ran to its end: their messages stand above");
    return;
  }
  std::string command = fmt::format("nought train {} --ranks {}", options_.run_file, options_.ranks);
  std::vector<std::string> warnings;
  Json run = read_run_file(options_.run_file, warnings);
  const auto set = [&](const std::string& line) {
    command += fmt::format(" --set {}", line);
    apply_override(run, parse_override(line));
  };
  for (const std::string& each : options_.overrides) set(each);
  for (const std::string& each : lines_of(best_)) set(each);
  write_text_atomically((results_ / "run.json").string(), run.dump(2) + "\n");
  if (run.contains("deepspeed") && run["deepspeed"].is_object())
    write_text_atomically((results_ / "ds_config.json").string(), run["deepspeed"].dump(2) + "\n");
  const double start = trials_.front().tokens_per_second;
  fmt::print("\nfastest: {} tok/s{}. {} has it; or\n\n    {}\n", format_count(best_speed_),
             start > 0 ? fmt::format(", {:.2f} of the start", best_speed_ / start) : "",
             (results_ / "run.json").string(), command);
}

int Tuner::tune() {
  attempt({});
  if (asked_ == 0 && trials_.front().tokens_per_second == 0)
    fmt::print("the run as it is fails; what runs is looked for\n");
  try_micro_batches();
  if (options_.ranks > 1)
    try_values("deepspeed.zero_optimization.stage", {"0", "1", "2", "3"}, std::to_string(plan_.layout.zero_stage));
  try_values("training.recompute", {"none", "selective", "full"}, name_of(plan_.layout.recompute.mode));
  confirm();
  report();
  return asked_ != 0 ? 128 + asked_ : best_speed_ > 0 ? 0 : 1;
}

}  // namespace

void add_tune(CLI::App& app, Invocation& invocation) {
  CLI::App* command =
      add_command(app, "tune", "Finds a faster configuration of the same training by short runs on this machine",
                  {"nought tune run.json --ranks 2 --time 10m", "nought tune run.json --ranks 2 --resume"});
  const auto options = std::make_shared<TuneOptions>();
  command->add_option("RUN.json", options->run_file, "The run; as it is, it is trial 0")->required();
  add_override_option(*command, options->overrides, "training.recompute=full");
  command->add_option("--ranks", options->ranks, "Number of processes of the run")->type_name("N");
  command->add_option("--time", options->time, "All trials start within it; one may take a quarter of it")
      ->type_name("10m");
  command->add_option("--steps", options->steps, "Steps of a trial, of which the first 3 are not counted")
      ->type_name("N")
      ->check(CLI::Range(4, 1000));
  command->add_option("--results", options->results, "Folder of trials.jsonl and of the run.json that is fastest")
      ->type_name("DIR");
  command->add_flag("--resume", options->resume, "Go on with the trials in that folder");
  command->callback([&invocation, options] { invocation.action = [options] { return Tuner(*options).tune(); }; });
}

}  // namespace nought
