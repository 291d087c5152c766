// nought plan: the memory, traffic and work of a run, predicted without allocating any of it.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>

#include "nought/base/lines.h"
#include "nought/base/text.h"
#include "nought/cli/commands.h"
#include "nought/cli/device.h"
#include "nought/cli/generation.h"
#include "nought/cli/launch.h"
#include "nought/cli/machine.h"
#include "nought/cli/plan_elastic.h"
#include "nought/cli/planned_run.h"
#include "nought/cli/shared_cores.h"
#include "nought/config/run_config.h"
#include "nought/cuda/workspace.h"
#include "nought/diagnose/pipeline_trace.h"
#include "nought/io/atomic_file.h"
#include "nought/kernels/limits.h"
#include "nought/observe/metrics.h"
#include "nought/plan/advice.h"
#include "nought/plan/chart.h"
#include "nought/plan/gpu_time.h"
#include "nought/plan/inference.h"
#include "nought/plan/largest_rank.h"
#include "nought/plan/live_parameters.h"
#include "nought/plan/pass_times.h"
#include "nought/plan/pipeline_chart.h"
#include "nought/plan/ready_run.h"
#include "nought/plan/save_interval.h"
#include "nought/plan/zero_cost.h"
#include "nought/prove/dry_runs.h"
#include "nought/simulate/from_plan.h"
#include "nought/simulate/report.h"
#include "nought/train/trainer.h"
#include "nought/weights/model_source.h"

namespace nought {

namespace {

struct PlanOptions {
  std::string run_file;
  std::vector<std::string> overrides;
  LaunchOptions launch = {};
  std::string stage;
  std::optional<std::string> gpu, cluster;
  bool json = false, elastic = false, layouts = false;
  std::string svg, trace;
  std::optional<int64_t> context, sequences;  // generation is planned if one of these is given
  std::optional<DType> kv_dtype;
  std::string draft;           // the folder of a model that guesses
  std::optional<double> mtbf;  // hours between failures
  std::string save_rate;       // bytes a second

  bool of_inference() const { return context || sequences || kv_dtype || !draft.empty(); }
};

RunConfig load(const PlanOptions& options) {
  return load_planned_run(options.run_file, options.overrides, names_gpu(options.launch.device));
}

/// The stages to show: all, or the one that --stage or the run names.
std::vector<int> stages_of(const std::string& text, int of_run) {
  if (text == "all") return {0, 1, 2, 3};
  if (text.empty()) return {of_run};
  require<ConfigError>(text.size() == 1 && '0' <= text[0] && text[0] <= '3',
                       "--stage must be 0, 1, 2, 3 or all, got {}", text);
  return {text[0] - '0'};
}

/// What a pipeline's passes take: as in the predicted time of a step; or by their FLOPs at any rate, where that is not
/// known.
PipelineTimeline planned_timeline(const PlanReport& report, const Layout& layout) {
  constexpr double kAny = 1e12;
  if (report.time) return *report.time->timeline;
  return pipeline_timeline(layout.pipeline, layout.accumulation, modelled_times(report.config, layout, kAny));
}

/// As planned; with a trace by the mean times of its passes, and beside it the trace.
Drawing draw_pipeline(const PlanReport& report, const Layout& layout, const std::string& trace) {
  const Pipeline& pipeline = layout.pipeline;
  std::vector<TimelinePanel> panels;
  if (trace.empty()) {
    panels.push_back({report.gpu    ? fmt::format("Planned, by rates of an {}", report.gpu->name)
                      : report.time ? "Planned, by what operations take here"
                                    : "Planned, by FLOPs",
                      planned_timeline(report, layout)});
  } else {
    PipelineTimeline real = timeline_of_trace(trace, pipeline, layout.accumulation, layout.ranks);
    panels.push_back({"Planned, passes as long as their means in the trace",
                      pipeline_timeline(pipeline, layout.accumulation, mean_times(real, pipeline))});
    panels.push_back({"The trace", std::move(real)});
  }
  return draw_timelines(panels, fmt::format("{}, {} micro-batches, {} stages of {}", name_of(pipeline.schedule),
                                            layout.accumulation, pipeline.stages(), report.config.family));
}

void write_svg(const PlanOptions& options, const PlanReport& report, const Layout& layout) {
  std::vector<Drawing> drawings;
  std::vector<Prediction> places;
  if (layout.stages() > 1) {
    drawings.push_back(draw_pipeline(report, layout, options.trace));
    if (report.predictions.size() == 1) places = predict_places(report.config, report.predictions.front().layout);
  }
  drawings.push_back(draw_memory(report, places));
  write_text_atomically(options.svg, to_svg(drawings));
}

/// What is predicted of a GPU that nobody has asked.
std::string note_of_gpu(bool has_time) {
  return fmt::format(
      "as on a GPU, which need not be here: the device's memory, and pinned memory of the host. Workspace of products "
      "is at most what is planned: {}, the limit that their library chooses within. Collectives pass the host{}",
      format_bytes(cuda::kMostWorkspaceOfProducts),
      has_time ? ", but for the time of a step: there they go from GPU to GPU of one host"
               : ". What a step takes is said with --gpu h100, a100, h200, 4090 or a file of rates");
}

/// The time of a step on such GPUs, which exchange tensors directly.
StepTime time_on_gpu(const PlanReport& report, Layout layout, const GpuRates& gpu) {
  layout.gpu->staged = false;
  return gpu_step_time(report.config, predict_places(report.config, layout), gpu);
}

/// The rates that --gpu names, if it does.
std::optional<GpuRates> gpu_of(const PlanOptions& options) {
  if (!options.gpu) return std::nullopt;
  require<ConfigError>(names_gpu(options.launch.device), "--gpu {} is for a run on GPUs: add --device cuda",
                       *options.gpu);
  return gpu_rates(*options.gpu);
}

/// For advice that is pasted behind this command line.
PastedRun pasted(const PlanOptions& options, const RunPlan& plan) {
  const auto run_with = [options, ranks = plan.layout.ranks](const std::vector<std::string>& settings) {
    PlanOptions changed = options;
    changed.overrides.insert(changed.overrides.end(), settings.begin(), settings.end());
    return with_model_folder(resolve(load(changed), ranks));
  };
  return {run_with, plan.output_dir + "/offload"};
}

std::string describe_largest_rank(const LargestRank& largest, int64_t budget, std::string_view what) {
  if (largest.rank == 0)
    return fmt::format("{}: not even one of r 1 fits training.device_memory, {}", what, format_bytes(budget));
  return fmt::format("{}: r up to {} {}, with {} at the peak", what, largest.rank,
                     largest.by_matrix ? "is what the smallest matrix has, and fits"
                                       : fmt::format("fits training.device_memory, {}", format_bytes(budget)),
                     format_bytes(largest.peak));
}

int run_elastic(const PlanOptions& options) {
  const ElasticRanks ranks = elastic_ranks(load(options), static_cast<int>(options.launch.ranks.value_or(0)));
  const auto plan_of = [&](const ElasticRanks::Choice& choice) {
    PlanOptions changed = options;
    changed.overrides.insert(changed.overrides.end(), choice.settings.begin(), choice.settings.end());
    return with_what_fits(with_model_folder(resolve(load(changed), choice.ranks)));
  };
  print_elastic(ranks, plan_of, options.json);
  return 0;
}

/// A run as it is on the cluster of --cluster, by the formulas of `nought simulate`.
struct OnCluster {
  Cluster cluster;
  SimulatedRun run;

  const FittedConstants& fitted() const { return fitted_constants().at(generation_of(cluster.chip, cluster.name)); }
  RankedLayout layout() const { return {run, simulate_step(run, cluster, fitted()), simulate_memory(run)}; }
};

OnCluster on_cluster(const PlanOptions& options, const ModelConfig& config, const Layout& layout) {
  return {cluster_of(*options.cluster), simulated_run(config, layout, software_of(kSimulatedSoftware))};
}

int print_layouts(const OnCluster& on, const PlanOptions& options) {
  constexpr int kShown = 10;
  const LayoutRanking ranking = rank_layouts(on.run, on.cluster, on.fitted(), static_cast<int>(on.run.ranks()), kShown);
  fmt::print("{}\n", options.json ? to_json(ranking, on.cluster, {}).dump(2) : to_text(ranking, on.cluster, {}));
  return 0;
}

int run_inference(const PlanOptions& options) {
  require<ConfigError>(
      !names_gpu(options.launch.device) && options.launch.ranks.value_or(1) == 1 && !options.gpu && !options.cluster &&
          !options.elastic && options.stage.empty() && options.svg.empty(),
      "--context, --sequences, --kv-dtype and --speculative plan generation by one rank on a CPU: leave away what "
      "plans a step of training");
  const RunPlan plan = with_model_folder(resolve(load(options), 1));
  InferenceSizes sizes{.kv_dtype = options.kv_dtype};
  if (options.sequences) sizes.sequences = *options.sequences;
  const auto plan_of = [&](const ModelConfig& config, const ModelSource* source, DType dtype) {
    sizes.context = options.context.value_or(std::min(sizes.context, config.most_cached()));
    InferencePlan inference = plan_inference(config, source, dtype, sizes);
    if (!options.draft.empty() && options.draft != "lookup")
      add_draft(inference, config, ModelSource(find_model(options.draft)));
    return inference;
  };
  InferencePlan inference;
  if (plan.model_dir.empty()) {
    inference = plan_of(model_config_of(plan), nullptr, plan.layout.sharding.dtype);
  } else {
    const ModelSource source(find_model(plan.model_dir));
    inference = plan_of(source.config(), &source, source.dtype());
  }
  const int64_t memory = plan.device_memory > 0 ? plan.device_memory : meminfo_bytes("MemTotal");
  if (options.json) {
    fmt::print("{}\n", to_json(inference, memory).dump(2));
  } else {
    fmt::print("{}", to_text(inference, memory, plan.device_memory > 0 ? "training.device_memory" : "this machine"));
  }
  return 0;
}

/// How often a run should save that fails each --mtbf hours: its save by --save-rate, by what it has measured before,
/// or by the disk.
struct PlannedSaves {
  SaveCost cost;
  SaveInterval interval;
  double between_failures = 0, step = 0;  // seconds
};

PlannedSaves planned_saves(const PlanOptions& options, const RunPlan& plan, const PlanReport& report) {
  require<ConfigError>(*options.mtbf > 0 && std::isfinite(*options.mtbf), "--mtbf must be more than 0 hours, got {}",
                       *options.mtbf);
  require<ConfigError>(report.time.has_value(),
                       "--mtbf needs the time of a step, which is not known of these GPUs: add --gpu");
  PlannedSaves saves{
      .cost = {}, .interval = {}, .between_failures = 3600 * *options.mtbf, .step = report.time->seconds()};
  const int64_t bytes = checkpoint_bytes(run_dry(report.config, layout_of(plan), /*with_frozen=*/!plan.adapts()));
  const auto measured = measured_save(std::filesystem::path(plan.output_dir) / kMetricsFile, bytes);
  if (!options.save_rate.empty()) {
    const auto rate = static_cast<double>(parse_bytes(options.save_rate, "--save-rate"));
    require<ConfigError>(rate > 0, "--save-rate must be more than 0 bytes a second, got {}", options.save_rate);
    saves.cost = {.bytes = bytes, .rate = rate, .seconds = static_cast<double>(bytes) / rate, .source = "--save-rate"};
  } else {
    saves.cost = measured ? *measured : save_by_disk(plan.output_dir, bytes);
  }
  saves.interval = save_interval(saves.cost.seconds, saves.between_failures, saves.step);
  return saves;
}

int run_plan(const PlanOptions& given) {
  if (given.of_inference()) return run_inference(given);
  PlanOptions options = given;
  require<ConfigError>(!options.layouts || options.cluster,
                       "--layouts is for a cluster: add --cluster, for instance {}", cluster_names());
  if (options.cluster) options.launch.device = "cuda";
  const int64_t ranks = options.launch.ranks.value_or(1);
  require<ConfigError>(1 <= ranks && ranks <= 1'000'000, "--ranks must be 1 to 1000000, got {}", ranks);
  if (options.elastic) return run_elastic(options);
  const std::optional<GpuRates> gpu = gpu_of(options);
  const RunConfig run = load(options);
  RunPlan plan = with_model_folder(resolve(run, static_cast<int>(ranks)));
  require<ConfigError>(!plan.model_dir.empty() || !plan.model_config.is_null(),
                       "{}: model is missing: expected a Hugging Face folder or the content of its config.json",
                       options.run_file);
  if (options.layouts) return print_layouts(on_cluster(options, model_config_of(plan), layout_of(plan)), options);
  use_threads(threads_per_rank());
  plan = with_what_fits(std::move(plan));
  PlanReport report{.config = model_config_of(plan), .budgets = budgets_of(plan)};
  if (!plan.layout.on_gpu())  // what the host can do says nothing about a GPU
    report.peak_flops = measure_matrix_peak(plan.layout.sharding.dtype),
    report.peak_name = std::string(matrix_peak_name(plan.layout.sharding.dtype));
  const Layout layout = layout_of(plan);
  for (const int stage : stages_of(options.stage, plan.layout.zero_stage))
    report.predictions.push_back(predict(report.config, layout.at_zero_stage(stage)));
  const bool one_stage = report.predictions.size() == 1;
  std::optional<MachineRates> rates;
  // The time is that of the run's own stage, or of the stage that is shown, if there is only that one.
  const Layout timed = one_stage ? report.predictions.front().layout : layout;
  if (gpu) report.time = time_on_gpu(report, timed, *gpu), report.gpu = gpu;
  if (!plan.layout.on_gpu()) {
    OperationTimes times = times_on_this_machine(plan, report.config, layout);
    report.time = slowest_step(report.config, predict_places(report.config, timed), times);
    rates = times.rates();
  }
  for (const Prediction& each : report.predictions) {
    if (const std::string line = describe_zero_cost(report.config, each); !line.empty())
      report.zero_costs.push_back(line);
    if (each.layout.zero_stage == 3 && each.layout.sharding.live.most > 0)
      if (const std::string line = describe_live(each); !line.empty()) report.zero_costs.push_back("stage 3: " + line);
  }
  report.recompute = predict_recompute(report.config, one_stage ? report.predictions.front().layout : layout);

  if (layout.stages() > 1) report.idle_share = planned_timeline(report, layout).idle_share();
  require<ConfigError>(options.trace.empty() || (layout.stages() > 1 && !options.svg.empty()),
                       "--trace is for the picture (--svg) of a run whose ranks hold different layers (pp_size)");
  if (plan.device_memory > 0 && plan.layout.ranks > 1)
    report.longest = longest_sequences(report.config, report.predictions.front().layout, plan.device_memory);
  if (!options.svg.empty()) write_svg(options, report, layout);
  std::optional<OnCluster> on;
  if (options.cluster) on = on_cluster(options, report.config, timed);
  std::optional<PlannedSaves> saves;
  if (options.mtbf) saves = planned_saves(options, plan, report);
  if (options.json) {
    OrderedJson json = to_json(report);
    if (on) json["simulation"] = to_json(on->layout(), on->cluster, {});
    if (saves) json["saving"] = to_json(saves->cost, saves->interval, saves->between_failures, saves->step);
    fmt::print("{}\n", json.dump(2));
    return 0;
  }
  const int width = stdout_columns();
  for (const std::string& warning : plan.warnings) fmt::print("{}\n", wrap("warning: " + warning, width, 8));
  if (plan.layout.on_gpu()) fmt::print("{}\n", wrap("note: " + note_of_gpu(gpu.has_value()), width, 8));
  for (const std::string& note : report.config.notes) fmt::print("{}\n", wrap("note: " + note, width, 8));
  fmt::print("{}", wrap(to_text(report), width, 8));
  if (saves)
    fmt::print("\n{}", wrap(describe(saves->cost, saves->interval, saves->between_failures, saves->step), width, 8));
  if (on) fmt::print("\n{}", to_text(on->layout(), on->cluster, {}));
  const Prediction& first = report.predictions.front();
  if (plan.device_memory > 0 && plan.adapter) {
    RunPlan of_model = plan;
    of_model.adapter.reset();
    const auto describe = [&](const Layout& of, std::string_view what) {
      const LargestRank largest = largest_rank(*plan.adapter, model_config_of(of_model), of, plan.device_memory);
      fmt::print("{}\n", wrap(describe_largest_rank(largest, plan.device_memory, what), width, 8));
    };
    fmt::print("\n");
    describe(first.layout, "adapter");
    if (const std::optional<Layout> coded = with_four_bits(report.config, first.layout))
      describe(*coded, "with quantization_config.load_in_4bit (nf4, double quantization)");
  }
  if (one_stage && !report.budgets.hold(first.most()))
    fmt::print("\n{}", describe_changes(report.config, first.layout, report.budgets, rates, pasted(options, plan)));
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, Invocation& invocation) {
  CLI::App* command = add_command(
      app, "plan", "Predicts memory per rank, traffic, work and least time of a run",
      {"nought plan run.json --ranks 8 --stage all", "nought plan run.json --set training.device_memory=2GiB",
       "nought plan llama-405b/config.json --ranks 1024 --stage all --svg memory.svg --set data.seq_length=8192",
       "nought plan run.json --ranks 4 --svg pipeline.svg --set training.parallelism_config.pp_size=4",
       "nought plan run.json --ranks 4 --mtbf 24    (how often to save where a failure comes each 24 hours)",
       "nought plan run.json --ranks 4 --elastic    (which numbers of ranks make the same batch)",
       "nought plan model.gguf --context 8192 --sequences 4 --kv-dtype int8    (generation)",
       "nought plan MODEL_DIR --context 8192 --speculative SMALL_MODEL_DIR    (generation, with a model that guesses)",
       "nought plan run.json --device cuda --gpu h100 --set training.device_memory=80GiB    (as on a GPU)"});
  const auto options = std::make_shared<PlanOptions>();
  command
      ->add_option("RUN.json", options->run_file,
                   "A run, or a model alone: a Hugging Face folder, config.json or a GGUF file")
      ->required();
  add_override_option(*command, options->overrides, "data.seq_length=8192");
  command->add_option("--ranks", options->launch.ranks, "Number of processes of the run")->type_name("N");
  add_device_option(*command, options->launch);
  command
      ->add_option(
          "--gpu", options->gpu,
          "With --device cuda: also predict the time of a step, by the rates of an a100, h100, h200 or 4090, or "
          "of a JSON file (docs/cuda.md)")
      ->type_name("NAME|FILE");
  command
      ->add_option("--cluster", options->cluster,
                   "Also predict the time of a step on this cluster of GPUs: " + cluster_names() +
                       ", or a JSON file (docs/simulator.md)")
      ->type_name("NAME|FILE");
  command->add_flag("--layouts", options->layouts, "With --cluster: every layout at the same batch, the fastest first");
  command->add_option("--stage", options->stage, "ZeRO stage, 0 to 3, or all of them side by side; default: the run's")
      ->type_name("S|all");
  CLI::Option* mtbf =
      command
          ->add_option(
              "--mtbf", options->mtbf,
              "Hours between failures of the whole job: how often to save, by Young's formula (docs/cluster.md)")
          ->type_name("HOURS");
  command
      ->add_option("--save-rate", options->save_rate,
                   "With --mtbf: bytes a second that all ranks write to training.output_dir together, such as 2GiB; "
                   "default: as saves of this run took, or as the disk is measured")
      ->type_name("BYTES")
      ->needs(mtbf);
  command->add_flag("--elastic", options->elastic,
                    "Every number of ranks with the same global batch, by deepspeed.elasticity or what divides the "
                    "batch of --ranks: micro-batch, accumulation, memory, whether it fits");
  command
      ->add_option("--context", options->context,
                   "Plan generation, not training: weights as they are kept, and the cache of sequences of T tokens")
      ->type_name("T");
  command->add_option("--sequences", options->sequences, "Likewise: S sequences that are computed together; default: 1")
      ->type_name("S");
  add_kv_dtype_option(*command, options->kv_dtype);
  command
      ->add_option("--speculative", options->draft,
                   "Likewise: a smaller model guesses, as with serve --speculative; lookup takes nothing")
      ->type_name("MODEL_DIR");
  command->add_flag("--json", options->json, "Print one JSON object");
  command
      ->add_option("--svg", options->svg,
                   "Also draw the peaks as a bar chart, below the timeline of a pipeline: its passes by their FLOPs")
      ->type_name("FILE");
  command
      ->add_option("--trace", options->trace,
                   "With --svg: draw the pipeline of this trace (nought train --trace), and its plan with the means of "
                   "its times")
      ->type_name("FILE");
  command->callback([&invocation, options] { invocation.action = [options] { return run_plan(*options); }; });
}

}  // namespace nought
