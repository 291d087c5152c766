// nought bench: figures of this machine, each with the limit that was measured beside it.
#include "nought/bench/bench.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "nought/base/json.h"
#include "nought/base/text.h"
#include "nought/bench/swap.h"
#include "nought/cli/bench_serve.h"
#include "nought/cli/commands.h"
#include "nought/cli/device.h"
#include "nought/cli/flight.h"
#include "nought/cli/launch.h"
#include "nought/comm/flight_timeout.h"
#include "nought/config/run_config.h"
#include "nought/kernels/limits.h"
#include "nought/measure/stage_seconds.h"
#include "nought/plan/fitting_tiles.h"
#include "nought/plan/fitting_update.h"
#include "nought/plan/live_parameters.h"
#include "nought/train/trainer.h"
#include "nought/weights/model_source.h"

namespace nought {

namespace {

/// What all of them know.
struct BenchOptions {
  LaunchOptions launch;
  int samples = 5;
  bool json = false;
  std::string dtype = "bf16";
  std::optional<DType> computed = {};  // the dtype of what was measured, if it is none of --dtype
  std::string device = {};             // " on cuda:0", where ranks compute on GPUs
  std::string after = {};              // what the table is followed by
  OrderedJson extra = nullptr;         // further members of the report

  DType type() const {
    require<ConfigError>(dtype == "bf16" || dtype == "f32", "--dtype must be bf16 or f32, got {}", dtype);
    return dtype == "bf16" ? DType::bf16 : DType::f32;
  }
};

Recompute recompute_of(const std::string& name) {
  for (const Recompute mode : {Recompute::none, Recompute::selective, Recompute::full})
    if (name == name_of(mode)) return mode;
  fail<ConfigError>("--recompute must be none, selective or full, got {}", name);
}

struct StepOptions {
  std::string work = "W1";
  std::vector<std::string> overrides;
  std::optional<int> stage;
  std::optional<int> tensor, stages, sequence, ulysses, experts;  // --tp, --pp, --cp, --sp, --ep
  std::optional<int64_t> micro_batches;
  std::optional<std::string> schedule;
  bool slices = false;  // --sequence-parallel
  std::optional<std::string> recompute;
  bool breakdown = false;
  const CLI::Option* dtype = nullptr;  // --dtype

  bool names_file() const { return work.ends_with(".json"); }
  /// The work, and in the end `plan` if it is the step of a run.
  TrialStep bench(Communicator& world, const Context& context, DType of_named, RunPlan& plan) const {
    TrialStep bench;
    if (names_file()) {
      require<ConfigError>(dtype->count() == 0, "--dtype is for W1 to W6: {} says its own (training.bf16)", work);
      const bool on_gpu = !context.memory->device().is_host();
      plan = with_model_folder(resolve(load_run_config(work, overrides, on_gpu), world.size()), world, context);
      require_trainable(plan);
      plan = with_fitting_tiles(with_stage_seconds(plan, model_config_of(plan), world, context));
      plan = with_common_live_parameters(with_common_fitting_update(std::move(plan), world, context), world, context);
      bench = step_of(plan, work);
    } else {
      require<ConfigError>(overrides.empty(), "--set overrides a value of RUN.json, and {} is none", work);
      bench = named_step(work, of_named);
    }
    if (stage) {
      require<ConfigError>(0 <= *stage && *stage <= 3, "--stage must be 0 to 3, got {}", *stage);
      bench.layout.zero_stage = *stage;
    }
    share_out(bench.layout, world.size());
    require<ConfigError>(!slices || tensor.value_or(1) > 1,
                         "--sequence-parallel shares out the tokens between the ranks of --tp, which is {}",
                         tensor.value_or(1));
    bench.layout.sequence_parallel |= slices;
    if (recompute) bench.layout.recompute.mode = recompute_of(*recompute);
    return bench;
  }

 private:
  /// The axes of the mesh, and the micro-batches of a step. Of the ranks that no option asks for, each reads samples of
  /// its own. The sequences of a step are as many with stages as without.
  void share_out(Layout& layout, int ranks) const {
    if (!tensor && !stages && !sequence && !ulysses && !experts && !micro_batches && !schedule) return;
    require<ConfigError>(!names_file(),
                         "--tp, --pp, --cp, --sp, --ep, --schedule and --micro-batches are for W1 to W6: {} says its "
                         "own (training.parallelism_config, training.gradient_accumulation_steps)",
                         work);
    require<ConfigError>(!sequence || !ulysses, "--cp and --sp share sequences in two ways: choose one");
    int left = ranks;
    const auto take = [&](const char* option, const std::optional<int>& size) {
      const int wanted = size.value_or(1);
      require<ConfigError>(wanted >= 1 && left % wanted == 0, "{} {}: {} ranks cannot be divided by it", option, wanted,
                           left);
      left /= wanted;
      return wanted;
    };
    const int sharing = take("--tp", tensor), places = take("--pp", stages);
    const int parts = ulysses ? take("--sp", ulysses) : take("--cp", sequence);
    require<ConfigError>(!schedule || places > 1, "--schedule {} is for the ranks of --pp, which is {}",
                         schedule.value_or(""), places);
    layout.tensor_ranks = sharing, layout.context_ranks = parts;
    const int holding = experts.value_or(1);
    require<ConfigError>(holding == 1 || work == "W5", "--ep {}: {} has no experts, W5 has", holding, work);
    require<ConfigError>(holding >= 1 && (left * parts) % holding == 0, "--ep {}: {} ranks cannot be divided by it",
                         holding, left * parts);
    layout.expert_ranks = holding;
    if (ulysses) layout.context_method = ContextMethod::heads;
    set_micro_batches(layout, places);
  }

  void set_micro_batches(Layout& layout, int places) const {
    layout.pipeline = {.schedule = parse_pipeline_schedule(schedule.value_or("1F1B")),
                       .ranks = places,
                       .partition = {.method = "profile"}};
    layout.pipeline.chunks = places > 1 ? default_chunks(layout.pipeline.schedule) : 1;
    const int64_t sequences = layout.micro_batch * places;
    layout.accumulation = micro_batches.value_or(places > 1 ? sequences : 1);
    require<ConfigError>(layout.accumulation >= 1 && sequences % layout.accumulation == 0,
                         "--micro-batches {}: {} has {} sequences for {} rank{}, which so many cannot share equally",
                         layout.accumulation, work, sequences, places, places == 1 ? "" : "s");
    check_micro_batches(layout.pipeline, layout.accumulation);
    layout.micro_batch = sequences / layout.accumulation;
  }
};

void print_figures(const BenchOptions& options, const std::vector<Figure>& figures, int ranks) {
  if (options.json) {
    OrderedJson report = bench_report(ranks, threads_per_rank(), figures);
    if (options.extra.is_object()) report.update(options.extra);
    fmt::print("{}\n", report.dump(2));
    return;
  }
  fmt::print("{} {} x {} {}{}, {} samples each", ranks, ranks == 1 ? "rank" : "ranks", threads_per_rank(),
             threads_per_rank() == 1 ? "thread" : "threads", options.device, options.samples);
  if (std::any_of(figures.begin(), figures.end(), [](const Figure& each) { return each.limit_name == kMatrixPeak; }))
    fmt::print("; {}: {}", kMatrixPeak, matrix_peak_name(options.computed.value_or(options.type())));
  fmt::print("\n");
  fmt::print("{}{}", to_table(figures), options.after);
}

using Measurement = std::function<std::vector<Figure>(Communicator&, const Context&)>;

int run_bench(const Invocation& invocation, const BenchOptions& options, const Measurement& measurement) {
  require<ConfigError>(1 <= options.samples && options.samples <= 1000, "--samples must be 1 to 1000, got {}",
                       options.samples);
  return launch(
      invocation, options.launch, [] {},
      [&](Communicator& world, const Context& context) {
        const FlightFolder flight(world, own_flight_folder(world, context));
        const std::vector<Figure> figures = measurement(world, context);
        if (world.rank() == 0) print_figures(options, figures, world.size());
      });
}

void add_options(CLI::App& command, BenchOptions& options) {
  command.add_option("--samples", options.samples, "How often to measure each figure and its limit")->type_name("N");
  command.add_flag("--json", options.json, "Print one JSON object");
}

/// A subcommand of bench whose figures are measured by `measurement`.
CLI::App* add_bench_of(CLI::App& bench, Invocation& invocation, const std::string& name, const std::string& description,
                       const std::shared_ptr<BenchOptions>& options, const Measurement& measurement) {
  CLI::App* command = bench.add_subcommand(name, description);
  add_options(*command, *options);
  command->callback([&invocation, options, measurement] {
    invocation.action = [&invocation, options, measurement] { return run_bench(invocation, *options, measurement); };
  });
  return command;
}

void add_dtype(CLI::App& command, BenchOptions& options) {
  command.add_option("--dtype", options.dtype, "bf16 or f32")->type_name("DTYPE");
}

void add_kernels(CLI::App& bench, Invocation& invocation) {
  using OfKernels = std::vector<Figure> (*)(const Context&, const Limits&, DType, int);
  const auto add = [&](const std::string& name, const std::string& description, OfKernels figures) {
    const auto options = std::make_shared<BenchOptions>();
    CLI::App* command = add_bench_of(bench, invocation, name, description, options,
                                     [options, figures](Communicator&, const Context& context) {
                                       return figures(context, measured_limits(), options->type(), options->samples);
                                     });
    add_dtype(*command, *options);
  };
  add("matmul", "Products of a GPT-2 layer and head, against a register-only loop", bench_products);
  add("attention", "Causal attention by length and head size, against a register-only loop", bench_attention);
  add("adam", "Updates, norms, activations and other element-wise kernels, against a triad", bench_elementwise);
}

void add_step(CLI::App& bench, Invocation& invocation) {
  const auto options = std::make_shared<BenchOptions>();
  const auto step = std::make_shared<StepOptions>();
  CLI::App* command = add_bench_of(
      bench, invocation, "step", "A whole training step, against a register-only loop", options,
      [options, step](Communicator& world, const Context& context) {
        RunPlan plan;
        const TrialStep work = step->bench(world, context, options->type(), plan);
        options->computed = work.layout.sharding.dtype;
        if (!context.memory->device().is_host())
          options->device = fmt::format(" on {}", context.memory->device().name());
        StepFigures report = bench_step(world, context, measured_limits(), work, options->samples);
        if (plan.max_steps > 0)
          report.step.facts.push_back({fmt::format("{} steps", plan.max_steps),
                                       report.step.seconds.median() * static_cast<double>(plan.max_steps), "s"});
        std::vector<Figure> figures{std::move(report.step)};
        if (step->breakdown) std::move(report.operations.begin(), report.operations.end(), std::back_inserter(figures));
        return figures;
      });
  add_launch_options(*command, options->launch);
  add_device_option(*command, options->launch);
  add_dtype(*command, *options);
  step->dtype = command->get_option("--dtype");
  command->add_option("WORK", step->work,
                      "RUN.json: the step of a run, on random tokens; or W1: GPT-2 124M, 4 x 1024 tokens per rank; "
                      "W2: a Llama, 2 x 2048; W3: W1 at 4 x 64; W4: W1 at 32 x 1024, for a GPU; W5: W1 with 8 of 64 "
                      "experts in place of each MLP; W6: Qwen 3.5's layers, 2 x 1024");
  add_override_option(*command, step->overrides, "training.bf16=false");
  command->add_option("--stage", step->stage, "ZeRO stage, 0 to 3; default: 0, or the run's")->type_name("S");
  command->add_option("--tp", step->tensor, "Neighbouring ranks that share the matrices of W1 to W6; default: 1")
      ->type_name("T");
  command->add_option("--pp", step->stages, "Ranks that hold different layers of W1 to W6, cut by FLOPs; default: 1")
      ->type_name("P");
  command->add_option("--ep", step->experts, "Ranks that hold different experts of W5; default: 1")->type_name("E");
  command
      ->add_option("--schedule", step->schedule,
                   "With --pp: GPipe, 1F1B, Interleaved1F1B, ZBH1 or ZBVZeroBubble; default: 1F1B")
      ->type_name("NAME");
  command
      ->add_option("--micro-batches", step->micro_batches,
                   "Parts of the sequences that a rank of W1 to W6 has, with --pp: that its P ranks have; default: "
                   "1, with --pp as many as there are sequences")
      ->type_name("M");
  command
      ->add_option("--cp", step->sequence, "Ranks that share each of its sequences, by cp_comm_type auto; default: 1")
      ->type_name("C");
  command->add_option("--sp", step->ulysses, "The same by Ulysses, in place of --cp")->type_name("C");
  command->add_flag("--sequence-parallel", step->slices,
                    "With --tp: between their products, each of these ranks has a slice of the tokens");
  command->add_option("--recompute", step->recompute, "none, selective or full; default: none, or the run's")
      ->type_name("MODE");
  command->add_flag(
      "--breakdown", step->breakdown,
      "Print the operations of rank 0's steps too, the longest first; a', b': a factor stored transposed");
}

void add_decode(CLI::App& bench, Invocation& invocation) {
  const auto options = std::make_shared<BenchOptions>();
  const auto length = std::make_shared<int64_t>(128);
  CLI::App* command = add_bench_of(bench, invocation, "decode",
                                   "Next tokens of 1, 8 and 32 sequences of a Llama of 1.1B, against a triad", options,
                                   [options, length](Communicator& self, const Context& context) {
                                     return bench_decode(self, context, measured_limits(), options->type(),
                                                         options->samples, decode_shape(), *length);
                                   });
  add_dtype(*command, *options);
  command->add_option("--context", *length, "Tokens that a sequence holds")->type_name("T")->capture_default_str();
}

void add_rollout(CLI::App& bench, Invocation& invocation) {
  const auto options = std::make_shared<BenchOptions>();
  const auto shape = std::make_shared<RolloutShape>();
  CLI::App* command = add_bench_of(
      bench, invocation, "rollout", "Answers of a group to one prompt, as GRPO has them, against prompts of their own",
      options, [options, shape](Communicator& self, const Context& context) {
        return std::vector{bench_rollout(self, context, options->type(), options->samples, rollout_shape(), *shape)};
      });
  add_dtype(*command, *options);
  command->add_option("--generations", shape->generations, "Answers")->type_name("G")->capture_default_str();
  command->add_option("--prompt", shape->prompt, "Tokens of a prompt")->type_name("T")->capture_default_str();
  command->add_option("--answer", shape->answer, "Tokens of an answer")->type_name("T")->capture_default_str();
}

void add_collectives(CLI::App& bench, Invocation& invocation) {
  const auto collectives = std::make_shared<BenchOptions>();
  const auto sizes = std::make_shared<std::vector<int64_t>>(std::vector<int64_t>{1, 4, 16, 64, 256});
  CLI::App* command = add_bench_of(
      bench, invocation, "collectives", "Collectives of 1 to 256 MiB: f32 against MPI's own, bf16 against f32",
      collectives, [collectives, sizes](Communicator& world, const Context& context) {
        return bench_collectives(world, context, collectives->type(), collectives->samples, *sizes);
      });
  add_launch_options(*command, collectives->launch);
  add_dtype(*command, *collectives);
  command->add_option("--sizes", *sizes, "Sizes of the whole tensors, in MiB")->delimiter(',')->type_name("N,...");
}

struct IoOptions {
  std::string folder = ".", size = "256MiB";
  double seconds = 45;
  bool quick = false;
};

/// Files of tensors, then the settings of files that states are offloaded to.
std::vector<Figure> measure_io(const IoOptions& io, const Context& context, BenchOptions& options) {
  require<ConfigError>(0 < io.seconds && io.seconds <= 3600, "--seconds must be 0 to 3600, got {}", io.seconds);
  const int64_t size = parse_bytes(io.size, "--size");
  SwapSweep sweep{.folder = io.folder,
                  .seconds = io.quick ? std::min(io.seconds, 5.0) : io.seconds,
                  .quick = io.quick,
                  .least_bytes = io.quick ? 16 << 20 : 32 << 20,
                  .most_bytes = io.quick ? 64 << 20 : 256 << 20};
  const int64_t room = std::max(2 * size, sweep.most_bytes);
  require_room(io.folder, room);
  fmt::print(stderr, "writes up to {} to {} at once, and removes it\n", format_bytes(room), io.folder);
  std::vector<Figure> figures = bench_io(context, io.folder, size, options.samples);
  const SwapReport swaps = bench_swap(*context.memory, sweep);
  options.after = "\n" + to_table(swaps);
  options.extra = {{"aio", aio_section(swaps.best().options)}, {"aio_backend", swaps.best().name}};
  if (!options.json) return figures;
  const std::vector<Figure> swap_figures = to_figures(swaps);
  figures.insert(figures.end(), swap_figures.begin(), swap_figures.end());
  return figures;
}

void add_io(CLI::App& bench, Invocation& invocation) {
  const auto options = std::make_shared<BenchOptions>();
  const auto io = std::make_shared<IoOptions>();
  CLI::App* command = add_bench_of(
      bench, invocation, "io", "Files: tensors beside plain calls; settings for offloading beside each other", options,
      [options, io](Communicator&, const Context& context) { return measure_io(*io, context, *options); });
  command->add_option("FOLDER,--folder", io->folder, "Folder to write to; the files are removed again; default: .");
  command->add_option("--size", io->size, "Bytes of a file of tensors")->type_name("SIZE");
  command->add_option("--seconds", io->seconds, "About how long to compare settings; default: 45")->type_name("N");
  command->add_flag("--quick", io->quick, "Compare fewer settings, in 5 seconds");
}

}  // namespace

void add_bench(CLI::App& app, Invocation& invocation) {
  CLI::App* bench = add_command(
      app, "bench", "Measures this machine: steps, kernels, collectives, files, and their limits; and servers",
      {"nought bench step W1 --ranks 2 --stage 2", "nought bench step run.json --ranks 4", "nought bench matmul --json",
       "nought bench collectives --ranks 2", "nought bench io /local_nvme",
       "nought bench serve MODEL_DIR --clients 1,8", "nought bench serve http://127.0.0.1:8080 --rate 2"});
  bench->require_subcommand(1);
  add_step(*bench, invocation);
  add_kernels(*bench, invocation);
  add_decode(*bench, invocation);
  add_rollout(*bench, invocation);
  add_collectives(*bench, invocation);
  add_io(*bench, invocation);
  add_bench_serve(*bench, invocation);
}

}  // namespace nought
