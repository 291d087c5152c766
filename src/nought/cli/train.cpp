// nought train and nought check: a run from RUN.json, and what it would be.
#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "nought/base/lines.h"
#include "nought/base/text.h"
#include "nought/checkpoint/checkpoint_folders.h"
#include "nought/checkpoint/output_folder.h"
#include "nought/checkpoint/resume.h"
#include "nought/checkpoint/run_files.h"
#include "nought/cli/commands.h"
#include "nought/cli/device.h"
#include "nought/cli/failure.h"
#include "nought/cli/flight.h"
#include "nought/cli/host_check.h"
#include "nought/cli/launch.h"
#include "nought/cli/launch_job.h"
#include "nought/cli/launch_mpirun.h"
#include "nought/cli/launch_session.h"
#include "nought/cli/machine.h"
#include "nought/cli/own_program.h"
#include "nought/cli/remote_calls.h"
#include "nought/cli/restarts.h"
#include "nought/cli/shared_cores.h"
#include "nought/cli/stop_signals.h"
#include "nought/cli/train_options.h"
#include "nought/comm/flight_recorder.h"
#include "nought/comm/flight_timeout.h"
#include "nought/comm/linked.h"
#include "nought/config/elastic_ranks.h"
#include "nought/config/run_config.h"
#include "nought/engine/pipeline_cut.h"
#include "nought/kernels/timed.h"
#include "nought/measure/stage_seconds.h"
#include "nought/observe/metrics.h"
#include "nought/observe/monitors.h"
#include "nought/observe/profile.h"
#include "nought/observe/progress.h"
#include "nought/observe/run_record.h"
#include "nought/plan/advice.h"
#include "nought/plan/fitting_save.h"
#include "nought/plan/fitting_tiles.h"
#include "nought/plan/fitting_update.h"
#include "nought/plan/live_parameters.h"
#include "nought/plan/ready_run.h"
#include "nought/plan/table.h"
#include "nought/plan/zero_cost.h"
#include "nought/prove/proof.h"
#include "nought/train/trial_steps.h"
#include "nought/train/validate_run.h"
#include "nought/weights/model_source.h"

namespace nought {

namespace {

/// A timeline for what the plan wants to know; the context's operations too, where they are traced or profiled.
Context with_timeline(Context context, Communicator& world, const RunPlan& plan) {
  const bool operations = !plan.trace_file.empty() || plan.profile;
  if (!plan.wall_clock_breakdown && !plan.comms_logger && !plan.log_straggler && !operations) return context;
  const auto timeline = std::make_shared<Timeline>();
  timeline->follow(context.stream);
  world.record(timeline);
  if (operations) context.kernels = make_timed_kernels(context.kernels, timeline);
  return context;
}

/// Trains until the run has come to its end, or a signal ends it: returns that signal, or 0. While the run finishes
/// signals end it as they end any program: everything is saved.
int train_with_signals(Trainer& trainer, bool first) {
  std::optional<StopSignals> signals(std::in_place, /*announce=*/first);
  trainer.stop_on(StopSignals::asked);
  const int signal = trainer.make_steps();
  signals.reset();
  if (signal == 0) trainer.finish();
  return signal;
}

/// Rank 0's: keeps the output folder while the run goes on.
class FolderKeeper final : public TrainObserver {
 public:
  FolderKeeper(OutputFolder& folder, ProgressPrinter& progress) : folder_(folder), progress_(progress) {}
  void on_step(const StepReport&) override { keep(); }
  void on_checkpoint(const SaveOutcome&) override { keep(); }

 private:
  void keep() {
    if (const std::string line = folder_.keep(); !line.empty()) progress_.note(line);
  }

  OutputFolder& folder_;
  ProgressPrinter& progress_;
};

/// --within: measures a few steps, and gives the options the max_steps that they allow. Returns the line that says why.
/// Collective.
std::string choose_max_steps(TrainOptions& options, const RunPlan& plan, Communicator& world, const Context& context) {
  note_phase(world, "measuring");
  const Samples measured = measure_steps(world, context, step_of(plan, "run"));
  const StepChoice choice = choose_steps(step_budget(options, plan), measured);
  options.overrides.push_back(fmt::format("training.max_steps={}", choice.steps));
  return fmt::format("{}; --set training.max_steps={} makes the same run again", choice.reason, choice.steps);
}

/// The memory of each place on the pipeline axis, and the seconds of a step of the slowest; these only for runs that
/// are long enough to compare them with, on the CPU, whose rates can be measured. Collective.
RunPrediction predicted_of(const RunPlan& plan, Communicator& world) {
  constexpr int64_t kFewSteps = 10;
  const ModelConfig config = model_config_of(plan);
  const Layout layout = layout_of(plan);
  const std::vector<Prediction> places = predict_places(config, layout);
  RunPrediction predicted{.memory = memory_of_ranks(config, places)};
  predicted.traffic = places.front().traffic_by_axes;
  if (places.front().at_most) predicted.assumed = bound_text(most_demanding(places).most());
  if (plan.layout.on_gpu() || (plan.max_steps != 0 && plan.max_steps < kFewSteps)) return predicted;
  OperationTimes times = measure_operations(world, plan, config, layout, shared_cores_of_job(world.size()));
  const StepTime step = slowest_step(config, places, times);
  predicted.seconds = step.seconds(), predicted.step = step.str(), predicted.busy = step.busy;
  return predicted;
}

/// Returns "", or a line about what is not proven. ConfigError with the counterexample.
std::string prove_start(const TrainOptions& options, const ReadyRun& ready) {
  RunPlan plan = ready.plan;
  if (!options.within.empty()) plan.max_steps = 0;  // measured steps will say how many there are
  return require_proven(plan, ready.inputs.config, resumes(options.mode()));
}

/// Returns the signal that ended the run early, or 0.
int train_rank(TrainOptions options, Communicator& world, const Context& context) {
  RunPlan plan = options.plan(world.size());
  const bool first = world.rank() == 0;
  std::optional<OutputFolder> folder;
  std::array<double, 1> row_tokens{};  // see Layout; the first rank alone has looked at the data
  std::string unproven;
  if (first) {
    folder.emplace(plan.output_dir);
    const ReadyRun ready = ready_run(plan, options.mode());
    require_memory(ready.plan, ready.inputs.config, options.pasted(plan));
    unproven = prove_start(options, ready);
    row_tokens[0] = static_cast<double>(ready.plan.layout.row_tokens);
  }
  all_reduce_values(world, context, row_tokens, ReduceOp::max);
  watch_calls(world, plan);
  const FlightFolder flight(world, std::filesystem::path(plan.output_dir) / "flight-recorder");
  plan = with_model_folder(plan, world, context);
  std::string choice;
  if (!options.within.empty()) {
    choice = choose_max_steps(options, plan, world, context);
    plan = with_model_folder(options.plan(world.size()), world, context);
  }
  if (first && !resumes(options.mode()))
    keep_chosen_steps(plan.output_dir, choice.empty() ? std::nullopt : std::optional(plan.max_steps));
  plan.layout.row_tokens = static_cast<int64_t>(row_tokens[0]);
  plan = with_fitting_tiles(with_stage_seconds(plan, model_config_of(plan), world, context));
  plan = with_common_live_parameters(with_common_fitting_update(std::move(plan), world, context), world, context);
  plan = with_common_fitting_save(std::move(plan), world, context);
  MetricsWriter metrics(plan.output_dir);
  const RunPrediction predicted = predicted_of(plan, world);
  ProgressPrinter progress(stdout, stdout_columns, plan.logging_steps, predicted);
  metrics.set_note([&](const std::string& line) { progress.note(line); });
  if (options.quiet) progress.set_quiet();
  for (const Resolved& row : plan.resolved)
    if (row.key == "update_beside_backward")
      progress.set_update_order(row.value == "true" ? "updates run overlapped with the backward pass: " + row.reason
                                                    : "updates wait for the backward pass: " + row.reason);
  if (first && plan.dump_state) fmt::print("{}", wrap(explain(plan), stdout_columns(), 4));
  if (first && !plan.dump_state)  // which ends with the warnings
    for (const std::string& warning : plan.warnings)
      fmt::print("{}\n", wrap("warning: " + warning, stdout_columns(), 4));
  std::optional<FolderKeeper> keeper;
  if (folder) {
    for (const std::string& note : folder->notes()) progress.note(note);
    if (!choice.empty()) progress.note(choice);
    if (!unproven.empty()) progress.note(unproven);
    if (const std::string words = words_of_links(world); !words.empty()) progress.note("collectives: " + words);
    keeper.emplace(*folder, progress);
  }
  context.memory->set_limit(plan.device_memory);
  context.memory->set_limit(plan.host_memory, Pool::host);
  std::optional<RunRecorder> record;
  if (first) record.emplace(plan, RunBeginning{options.arguments(), options.settings(), machine_facts()}, predicted);
  try {
    ProfileWriter profile;
    std::vector<TrainObserver*> observers{&metrics, &profile, &progress};
    if (record) observers.push_back(&*record);
    if (keeper) observers.push_back(&*keeper);
    TensorBoardMonitor tensorboard(plan.tensorboard_dir, plan.layout.train_batch());
    CsvMonitor csv(plan.csv_dir, plan.layout.train_batch());
    TensorBoardMonitor reports(plan.report_dir, 1, ScalarNames::transformers);
    if (!plan.report_dir.empty()) observers.push_back(&reports);
    if (!plan.tensorboard_dir.empty()) observers.push_back(&tensorboard);
    if (!plan.csv_dir.empty()) observers.push_back(&csv);
    Trainer trainer(plan, options.mode(), world, with_timeline(context, world, plan), observers);
    return train_with_signals(trainer, first);
  } catch (const MemoryLimitError& refusal) {
    if (record) record->on_failure(refusal.what());
    throw MemoryLimitError(explain_refusal(refusal, plan, options.pasted(plan)));
  } catch (const std::exception& failure) {
    if (record) record->on_failure(failure.what());
    throw;
  }
}

/// Throws if --overwrite would remove the checkpoint that --resume continues.
void check_mode(const RunPlan& plan, StartMode mode) {
  require<ConfigError>(mode != StartMode::resume_overwrite || !plan.resume_from.empty(),
                       "--resume continues a run and --overwrite removes it: give one of them, or name the checkpoint "
                       "to go back to");
}

/// The quick checks of `nought doctor`, where ranks start on other hosts by an agent. DeviceError. A supervised run has
/// them at its first start alone: a host that is lost later is a failure, which mpirun says.
void check_other_hosts(const TrainOptions& options, const RunPlan& plan) {
  const std::vector<Host> hosts = hosts_of(options.launch);
  const bool all_here =
      std::all_of(hosts.begin(), hosts.end(), [](const Host& host) { return is_this_host(host.name); });
  if (all_here || is_supervised() || in_allocation()) return;
  const RunNeeds needs{.files = files_of_run(plan),
                       .output_dir = plan.output_dir,
                       .ranks = static_cast<int>(options.launch.ranks.value_or(0))};
  const std::string problems = describe_problems(check_hosts(hosts, needs, own_program()));
  require<DeviceError>(problems.empty(), "{}; `nought doctor {} --hostfile {}` shows all hosts", problems,
                       options.run_file, options.launch.hostfile);
}

/// ConfigError, IoError, DeviceError or MemoryLimitError for what a start of the run would end with.
void validate(const TrainOptions& options) {
  const int64_t ranks = options.launch.ranks.value_or(1);
  const RunPlan plan = options.plan(static_cast<int>(ranks));
  check_mode(plan, options.mode());
  if (!options.within.empty()) step_budget(options, plan);
  OutputFolder::require_free(plan.output_dir);
  if (const std::vector<std::string> left = LaunchSession::remove_left(); !left.empty()) {
    fmt::print("{}\n", wrap("note: removed what killed runs left: " + some_of(left), stdout_columns(), 4));
    std::fflush(stdout);  // the ranks print next
  }
  const ReadyRun ready = ready_run(plan, options.mode());
  // Without --ranks, mpirun makes as many ranks as the hosts have slots.
  if (options.launch.ranks || options.launch.hostfile.empty())
    require_memory(ready.plan, ready.inputs.config, options.pasted(plan));
  check_other_hosts(options, plan);
  // One rank asks by itself; of several, nobody should start if it does not hold.
  if (ranks > 1) prove_start(options, ready);
}

/// Returns the command with another number of ranks, and what they are told.
TrainOptions with_ranks(TrainOptions options, const ElasticRanks::Choice& choice) {
  options.launch.ranks = choice.ranks;
  options.overrides.insert(options.overrides.end(), choice.settings.begin(), choice.settings.end());
  return options;
}

/// The numbers of ranks that --min-ranks allows; none without it. ConfigError if there are none.
ElasticRanks allowed_ranks(const TrainOptions& options, int ranks) {
  if (!options.restarts.min_ranks) return {};
  ElasticRanks all = elastic_ranks(options.config(), ranks);
  const auto least = static_cast<int>(*options.restarts.min_ranks);
  const ElasticRanks::Choice *most = all.largest(ranks), *below = all.largest(least - 1);
  if (most != nullptr && most->ranks >= least) return all;
  const auto above =
      std::find_if(all.choices.begin(), all.choices.end(), [&](const auto& c) { return c.ranks > ranks; });
  fail<ConfigError>(
      "no number of ranks from --min-ranks {} to --ranks {} makes the global batch of {}; the nearest: {}", least,
      ranks, all.train_batch,
      below != nullptr             ? below->ranks
      : above != all.choices.end() ? above->ranks
                                   : 0);
}

int run_with_restarts(const TrainOptions& given) {
  require<ConfigError>(!place_in_job(),
                       "--restarts starts ranks by itself, and this process is a rank already: leave it out, or start "
                       "nought without mpirun or srun, with --ranks");
  const std::vector<Host> hosts = hosts_of(given.launch);
  const auto ranks = static_cast<int>(given.launch.ranks.value_or(hosts.empty() ? 1 : total_slots(hosts)));
  check_restarts(given.restarts, ranks);
  SupervisedRun run{.ranks = ranks, .elastic = allowed_ranks(given, ranks)};
  const ElasticRanks::Choice* choice = run.elastic.largest(ranks);
  const TrainOptions first = choice == nullptr ? given : with_ranks(given, *choice);
  validate(first);
  const RunPlan plan = first.plan(static_cast<int>(first.launch.ranks.value_or(1)));
  run.output_dir = plan.output_dir;
  run.all_here = hosts.empty();
  run.timeout = std::chrono::seconds(plan.collective_timeout);
  if (resumes(first.mode())) run.first_step = checkpoint_step(resume_point(plan)).value_or(0);
  run.arguments = [&](bool resumes, const ElasticRanks::Choice& ranks_now) {
    TrainOptions options = with_ranks(given, ranks_now);
    if (resumes) {
      options.overwrite = false;
      options.rewind.reset();
      options.within.clear();
      options.overrides.emplace_back("training.resume_from_checkpoint=true");
    }
    return options.arguments();
  };
  return supervise(given.restarts, run);
}

int run_train(const Invocation& invocation, const TrainOptions& options) {
  if (!options.trace_file.empty()) {
    const auto folder = std::filesystem::absolute(options.trace_file).parent_path();
    require<ConfigError>(std::filesystem::is_directory(folder), "--trace {}: there is no folder {}", options.trace_file,
                         folder.string());
  }
  if (options.restarts.restarts) return run_with_restarts(options);
  int signal = 0;
  const int code = launch(
      invocation, options.launch, [&] { validate(options); },
      [&](Communicator& world, const Context& context) { signal = train_rank(options, world, context); });
  return signal == 0 ? code : exit_code_of(signal);
}

/// What `nought check` says of a run behind its table.
std::vector<std::string> describe_inputs(const RunPlan& plan, const RunInputs& inputs) {
  std::vector<std::string> lines;
  for (const std::string& line : describe_layout(plan, inputs.config)) lines.push_back("mesh: " + line);
  const auto count = [](int64_t number) { return format_count(static_cast<double>(number)); };
  const std::string trained =
      inputs.frozen == 0 ? "" : fmt::format(", {} of them trained", count(inputs.parameters - inputs.frozen));
  lines.push_back(
      fmt::format("model: {} with {} parameters{}", inputs.config.family, count(inputs.parameters), trained));
  for (const std::string& line : describe_adapter(inputs.config.adapter)) lines.push_back("adapter: " + line);
  for (const std::string& line : inputs.compressed) lines.push_back("compression: " + line);
  lines.push_back("data: " + inputs.data.describe(inputs.tokenizer));
  for (const std::string& note : inputs.notes) lines.push_back("note: " + note);
  const Prediction prediction = predict(inputs.config, layout_of(plan));
  if (const std::string cost = describe_zero_cost(inputs.config, prediction); !cost.empty())
    lines.push_back("zero: " + cost);
  std::string pools;
  if (prediction.memory.host_peak > 0)
    pools += fmt::format(", {} on the host", format_bytes(prediction.memory.host_peak));
  if (prediction.memory.file_peak > 0) pools += fmt::format(", {} in files", format_bytes(prediction.memory.file_peak));
  lines.push_back(fmt::format("memory: {} per rank at the peak{}, as predicted",
                              format_bytes(prediction.memory.peak_total), pools));
  if (prediction.at_most) lines.push_back(bound_text(*prediction.at_most));
  return lines;
}

/// The run as train would begin it. Where that fails, what is known is printed before the error.
ReadyRun look_at_run(const RunPlan& plan, StartMode mode) {
  try {
    return ready_run(plan, mode, kDryRun);
  } catch (...) {
    fmt::print("{}", wrap(explain(plan), stdout_columns(), 4));
    throw;
  }
}

/// Prints what is proven of the run (prove/proof.h). Error unless all of it holds.
void print_proof(const ReadyRun& ready, StartMode mode, bool json, int width) {
  const Proof proof = prove(ready.plan, ready.inputs.config, resumes(mode));
  fmt::print("{}", json ? to_json(proof).dump(2) + "\n" : wrap(to_text(proof), width, 4));
  std::fflush(stdout);
  require_holds(proof.properties);
}

/// Prints the plan, then what was found of its files, or the error that train would end with.
int run_check(const TrainOptions& options, bool proves, bool json) {
  require<ConfigError>(proves || !json, "--json is for --prove: add it, or leave --json away");
  const int64_t ranks = options.launch.ranks.value_or(1);
  require<ConfigError>(ranks >= 1, "--ranks must be at least 1, got {}", ranks);
  const RunPlan plan = with_model_folder(options.plan(static_cast<int>(ranks)));
  check_mode(plan, options.mode());
  OutputFolder::require_free(plan.output_dir);
  const int width = stdout_columns();
  const ReadyRun ready = look_at_run(plan, options.mode());
  if (json) {
    print_proof(ready, options.mode(), json, width);
    return 0;
  }
  fmt::print("{}", wrap(explain(ready.plan), width, 4));
  for (const std::string& line : describe_inputs(ready.plan, ready.inputs)) fmt::print("{}\n", wrap(line, width, 4));
  require_memory(ready.plan, ready.inputs.config, options.pasted(plan));
  if (proves) print_proof(ready, options.mode(), json, width);
  return 0;
}

}  // namespace

void add_train(CLI::App& app, Invocation& invocation) {
  CLI::App* command =
      add_command(app, "train", "Trains a model as RUN.json says",
                  {"nought train examples/quickstart.json --ranks 2",
                   "nought train run.json --set training.max_steps=5 --set training.bf16=true",
                   "nought train run.json --ranks 4 --resume",
                   "nought train run.json --ranks 4 --restarts 3    (goes on from the last checkpoint by itself)",
                   "nought train run.json --within 2h    (chooses training.max_steps by measured steps)",
                   "nought train run.json --rewind 500    (goes back; later checkpoints are set aside)",
                   "nought train run.json --resume 500 --overwrite    (goes back, removes later ones)",
                   "nought train run.json --resume other/checkpoint-500"});
  const auto options = std::make_shared<TrainOptions>();
  const auto resume = add_run_options(*command, *options);
  add_launch_options(*command, options->launch);
  add_device_option(*command, options->launch);
  add_restart_options(*command, options->restarts);
  command
      ->add_option("--trace", options->trace_file,
                   "Write a trace of the fourth step: all ranks' operations and collectives, for ui.perfetto.dev")
      ->type_name("FILE");
  command->add_flag("--quiet", options->quiet,
                    "No lines of steps; without it there is one every training.logging_steps updates, in a file or a "
                    "pipe as wide as all that it says, and metrics.jsonl has them all");
  CLI::Option* within =
      command
          ->add_option("--within", options->within,
                       "Choose training.max_steps before the run, by a few measured steps: as many as fit into TIME, "
                       "at most what RUN.json says. No clock ends the run")
          ->type_name("TIME");
  command->add_option("--min-steps", options->min_steps, "The fewest steps that --within chooses")
      ->type_name("N")
      ->needs(within);
  command->callback([&invocation, options, resume] {
    resume->apply();
    invocation.action = [&invocation, options] { return run_train(invocation, *options); };
  });
}

void add_check(CLI::App& app, Invocation& invocation) {
  CLI::App* command = add_command(
      app, "check", "Prints every resolved value of RUN.json and its reason, and refuses what train would refuse",
      {"nought check run.json --ranks 8", "nought check run.json --set training.learning_rate=3e-4",
       "nought check run.json --ranks 64 --prove    (no rank would wait for ever, run out of memory or disk)"});
  struct Options : TrainOptions {
    bool proves = false, json = false;
  };
  const auto options = std::make_shared<Options>();
  const auto resume = add_run_options(*command, *options);
  command->add_option("--ranks", options->launch.ranks, "Number of processes of the run")->type_name("N");
  add_device_option(*command, options->launch);
  command->add_flag("--prove", options->proves,
                    "Run all ranks without data: their calls meet, none waits for ever, all is given back, memory, "
                    "disk and files suffice, and a resume finds what it needs");
  command->add_flag("--json", options->json, "With --prove: what was proven, as JSON alone");
  command->callback([&invocation, options, resume] {
    resume->apply();
    invocation.action = [options] { return run_check(*options, options->proves, options->json); };
  });
}

}  // namespace nought
