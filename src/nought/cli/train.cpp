// nought train and nought check: a run from RUN.json, and what it would be.
#include <filesystem>
#include <memory>

#include "nought/cli/commands.h"
#include "nought/cli/launch.h"
#include "nought/cli/launch_job.h"
#include "nought/config/run_config.h"
#include "nought/kernels/timed.h"
#include "nought/observe/metrics.h"
#include "nought/observe/monitors.h"
#include "nought/observe/profile.h"
#include "nought/observe/progress.h"
#include "nought/plan/advice.h"
#include "nought/train/model_source.h"
#include "nought/train/trainer.h"

namespace nought {

namespace {

struct TrainOptions {
  std::string run_file;
  std::vector<std::string> overrides;
  LaunchOptions launch;
  bool resume = false, overwrite = false;
  std::string trace_file;

  StartMode mode() const { return resume ? StartMode::resume : overwrite ? StartMode::overwrite : StartMode::fresh; }
  RunPlan plan(int world_size) const { return resolve_run(load_run_config(run_file, overrides), world_size, mode()); }
};

void add_run_options(CLI::App& command, TrainOptions& options) {
  command.add_option("RUN.json", options.run_file, "The run: model, data, training and deepspeed sections")->required();
  add_override_option(command, options.overrides, "training.max_steps=5");
}

/// A timeline for what the plan wants to know; the context's operations too, where they are traced or profiled.
Context with_timeline(Context context, Communicator& world, const RunPlan& plan) {
  const bool operations = !plan.trace_file.empty() || plan.profile;
  if (!plan.wall_clock_breakdown && !plan.comms_logger && !operations) return context;
  const auto timeline = std::make_shared<Timeline>();
  world.record(timeline);
  if (operations) context.kernels = make_timed_kernels(context.kernels, timeline);
  return context;
}

void train_rank(const TrainOptions& options, Communicator& world, const Context& context) {
  RunPlan plan = options.plan(world.size());
  plan.trace_file = options.trace_file;
  const bool first = world.rank() == 0;
  if (first) validate_run(plan, options.mode());
  world.barrier().wait();
  plan = with_model_folder(plan, world, context);
  MetricsWriter metrics(plan.output_dir);
  const Prediction prediction = predict(model_config_of(plan), layout_of(plan));
  ProgressPrinter progress(stdout, stdout_is_terminal(), plan.logging_steps, prediction.memory);
  if (first && plan.dump_state) fmt::print("{}", explain(plan));
  if (first && !plan.dump_state)  // which ends with the warnings
    for (const std::string& warning : plan.warnings) fmt::print("warning: {}\n", warning);
  context.memory->set_limit(plan.device_memory);
  try {
    ProfileWriter profile;
    std::vector<TrainObserver*> observers{&metrics, &profile, &progress};
    TensorBoardMonitor tensorboard(plan.tensorboard_dir, plan.train_batch);
    CsvMonitor csv(plan.csv_dir, plan.train_batch);
    if (!plan.tensorboard_dir.empty()) observers.push_back(&tensorboard);
    if (!plan.csv_dir.empty()) observers.push_back(&csv);
    Trainer(plan, options.mode(), world, with_timeline(context, world, plan), observers).run();
  } catch (const MemoryLimitError& refusal) {
    throw MemoryLimitError(explain_refusal(refusal, plan));
  }
}

int run_train(const Invocation& invocation, const TrainOptions& options) {
  require<ConfigError>(!(options.resume && options.overwrite),
                       "--resume continues a run and --overwrite removes it: give one of them");
  if (!options.trace_file.empty()) {
    const auto folder = std::filesystem::absolute(options.trace_file).parent_path();
    require<ConfigError>(std::filesystem::is_directory(folder), "--trace {}: there is no folder {}", options.trace_file,
                         folder.string());
  }
  const auto validate = [&] {
    const int64_t ranks = options.launch.ranks.value_or(1);
    validate_run(options.plan(static_cast<int>(ranks)), options.mode());
  };
  return launch(invocation, options.launch, validate,
                [&](Communicator& world, const Context& context) { train_rank(options, world, context); });
}

}  // namespace

void add_train(CLI::App& app, Invocation& invocation) {
  CLI::App* command = add_command(app, "train", "Trains a model as RUN.json says",
                                  {"nought train examples/quickstart.json --ranks 2",
                                   "nought train run.json --set training.max_steps=5 --set training.bf16=true",
                                   "nought train run.json --ranks 4 --resume"});
  const auto options = std::make_shared<TrainOptions>();
  add_run_options(*command, *options);
  add_launch_options(*command, options->launch);
  command
      ->add_option("--trace", options->trace_file,
                   "Write a trace of the third step: all ranks' operations and collectives, for ui.perfetto.dev")
      ->type_name("FILE");
  command->add_flag("--resume", options->resume, "Continue the last checkpoint of training.output_dir");
  command->add_flag("--overwrite", options->overwrite,
                    "Remove the checkpoints of an earlier run in training.output_dir");
  command->callback([&invocation, options] {
    invocation.action = [&invocation, options] { return run_train(invocation, *options); };
  });
}

void add_check(CLI::App& app, Invocation& invocation) {
  CLI::App* command =
      add_command(app, "check", "Prints every resolved value of RUN.json and its reason; allocates nothing",
                  {"nought check run.json --ranks 8", "nought check run.json --set training.learning_rate=3e-4"});
  const auto options = std::make_shared<TrainOptions>();
  add_run_options(*command, *options);
  command->add_option("--ranks", options->launch.ranks, "Number of processes of the run")->type_name("N");
  command->callback([&invocation, options] {
    invocation.action = [options] {
      const int64_t ranks = options->launch.ranks.value_or(1);
      require<ConfigError>(ranks >= 1, "--ranks must be at least 1, got {}", ranks);
      const RunPlan plan = options->plan(static_cast<int>(ranks));
      fmt::print("{}", explain(plan));
      const ModelConfig model = model_config_of(plan);
      Decoder decoder(model);
      apply(plan.freezing, decoder);
      fmt::print("model: {}, {} parameters", model.family, decoder.parameter_count());
      if (!plan.freezing.empty())
        fmt::print(", {} of them trained", decoder.parameter_count() - decoder.frozen_count());
      fmt::print("\n");
      for (const std::string& note : model.notes) fmt::print("note: {}\n", note);
      return 0;
    };
  });
}

}  // namespace nought
