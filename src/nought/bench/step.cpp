#include <algorithm>
#include <ctime>
#include <map>
#include <numeric>

#include <unistd.h>

#include "nought/base/process.h"
#include "nought/base/text.h"
#include "nought/bench/bench.h"
#include "nought/kernels/timed.h"
#include "nought/models/decoder.h"
#include "nought/models/flops.h"
#include "nought/tensor/random.h"
#include "nought/train/engine.h"
#include "nought/train/pipeline_cut.h"
#include "nought/train/profile.h"
#include "nought/train/trainer.h"
#include "nought/zero/state.h"

namespace nought {

namespace {

ModelConfig gpt2_124m() {
  return ModelConfig::from_json({{"model_type", "gpt2"},
                                 {"vocab_size", 50304},
                                 {"n_embd", 768},
                                 {"n_layer", 12},
                                 {"n_head", 12},
                                 {"n_positions", 1024}});
}

ModelConfig llama_125m() {
  return ModelConfig::from_json({{"model_type", "llama"},
                                 {"vocab_size", 32000},
                                 {"hidden_size", 768},
                                 {"intermediate_size", 2048},
                                 {"num_hidden_layers", 16},
                                 {"num_attention_heads", 12},
                                 {"num_key_value_heads", 4},
                                 {"max_position_embeddings", 2048},
                                 {"tie_word_embeddings", true}});
}

/// Tokens that are a function of (number, rank, index); `number` counts micro-batches.
Batch random_batch(const StepBench& bench, const Context& context, int rank, int ranks, int64_t number) {
  Batch batch = empty_batch(bench.layout.micro_batch, bench.layout.seq_length, *context.memory);
  const auto key = static_cast<uint64_t>(number * ranks + rank);
  uint64_t index = 0;
  for (const Tensor& tensor : {batch.input_ids, batch.targets})
    for (int32_t& token : tensor.span<int32_t>())
      token = static_cast<int32_t>(philox(key, index++)[0] % static_cast<uint64_t>(bench.config.vocab_size));
  return batch;
}

GridSizes grid_of(Layout layout, int ranks) {
  layout.ranks = ranks;
  return layout.grid();
}

/// A model that makes one step after the other.
class Stepper {
 public:
  Stepper(Communicator& ranks, const Context& context, const StepBench& bench)
      : bench_(bench),
        context_(context),
        layout_(bench_.layout),
        mesh_(ranks, grid_of(bench_.layout, ranks.size())),
        samples_(mesh_.group(Group::samples)),
        decoder_(
            bench.config, layout_.recompute, layout_.fp8,
            ModelRanks(mesh_, layout_.sequence_parallel,
                       pipeline_cut_of(layout_.pipeline, bench.config, layout_.seq_length), layout_.context_method)),
        model_(context, mesh_, apply(layout_.freezing, decoder_), layout_.sharding_options()),
        engine_(model_, LossScaler(), /*gradient_factor=*/1, OnNonfinite::skip) {
    engine_.set_schedule(schedule_at(mesh_, layout_.pipeline));
    model_.load(InitialState(1));
  }

  /// Of all ranks.
  int64_t tokens() const { return samples_.size() * layout_.micro_batch * layout_.accumulation * layout_.seq_length; }
  /// Model FLOPs, less those of what is frozen.
  double flops_per_token() const {
    return training_flops_per_token(bench_.config, layout_.seq_length) -
           frozen_flops_per_token(decoder_, layout_.seq_length);
  }
  /// Makes the next step. Collective.
  void step() {
    std::vector<Batch> batches;
    for (int64_t i = 0; i < layout_.accumulation; ++i)
      batches.push_back(random_batch(bench_, context_, samples_.rank(), samples_.size(), made_++));
    engine_.step(batches, static_cast<double>(tokens()), /*lr=*/1e-4, /*max_norm=*/1);
    model_.settle();
    context_.stream->synchronize();
  }

 private:
  const StepBench& bench_;
  Context context_;
  const Layout& layout_;
  Mesh mesh_;
  const Communicator& samples_;  // ranks that read different ones
  Decoder decoder_;
  ShardedModel model_;
  Engine engine_;
  int64_t made_ = 0;  // micro-batches
};

/// Whether steps that took so long tell how long others will take.
bool tell_enough(const Samples& seconds) {
  constexpr size_t kSteps = 5;
  constexpr double kLeast = 2, kMost = 15;  // seconds, in all
  const double sum = std::accumulate(seconds.values.begin(), seconds.values.end(), 0.0);
  return (seconds.values.size() >= kSteps && sum >= kLeast) || sum >= kMost;
}

/// Seconds since this process was started, to a hundredth.
double seconds_since_start() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) -
         static_cast<double>(process_stat(getpid()).value().start) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

/// One figure per operation, from the books of several steps.
class OperationBooks {
 public:
  OperationBooks(int ranks, bool limited) : ranks_(ranks), limited_(limited) {}

  /// peak, triad: of all ranks together.
  void add(const std::map<std::string, OperationTotal>& books, double step_seconds, double peak, double triad) {
    double rest = step_seconds;
    for (const auto& [name, book] : books) {
      rest -= book.seconds;
      const bool computes = book.work.flops > 0;
      Figure& figure = figures_[name];
      figure.name = fmt::format("{} x {}", book.runs, name);
      figure.work = computes ? book.work.flops : book.work.bytes;
      figure.unit = computes ? "FLOP" : "B";
      figure.seconds.values.push_back(book.seconds);
      share(figure, step_seconds);
      if (!limited_) continue;
      figure.limit_name = computes ? kMatrixPeak : "triad";
      const double limit = (computes ? peak : triad) / ranks_;
      figure.limits.values.push_back(computes ? std::max(limit, figure.reached(book.seconds)) : limit);
    }
    Figure& figure = figures_[""];
    figure.name = "the rest: collectives, waiting, the tape";
    figure.seconds.values.push_back(rest);
    share(figure, step_seconds);
  }

  std::vector<Figure> figures() const {
    std::vector<Figure> sorted;
    for (const auto& [name, figure] : figures_) sorted.push_back(figure);
    std::sort(sorted.begin(), sorted.end(),
              [](const Figure& a, const Figure& b) { return a.seconds.median() > b.seconds.median(); });
    return sorted;
  }

 private:
  static void share(Figure& figure, double step_seconds) {
    figure.facts = {{"of the step", figure.seconds.median() / step_seconds, "%"}};
  }

  int ranks_;
  bool limited_;
  std::map<std::string, Figure> figures_;
};

}  // namespace

StepBench named_step(const std::string& name, DType dtype) {
  StepBench bench{.name = name};
  Layout& layout = bench.layout;
  layout.sharding = {.dtype = dtype, .gradient_dtype = dtype, .overlap = true, .optimizer = {}};
  if (name == "W1" || name == "W3") {
    bench.config = gpt2_124m();
    layout.micro_batch = 4, layout.seq_length = name == "W1" ? 1024 : 64;
  } else if (name == "W2") {
    bench.config = llama_125m();
    layout.micro_batch = 2, layout.seq_length = 2048;
  } else {
    fail<ConfigError>("unknown work {}: W1, W2 or W3", name);
  }
  return bench;
}

StepBench step_of(const RunPlan& plan, const std::string& name) {
  StepBench bench{.name = name, .config = model_config_of(plan), .layout = plan.layout};
  bench.layout.seq_length = plan.data.seq_length;
  return bench;
}

StepFigures bench_step(Communicator& ranks, const Context& context, const Limits& limits, const StepBench& bench,
                       int samples) {
  const auto timeline = std::make_shared<Timeline>();
  Context timed = context;
  timeline->follow(context.stream);
  timed.kernels = make_timed_kernels(context.kernels, timeline);
  Stepper stepper(ranks, timed, bench);
  const auto tokens = static_cast<double>(stepper.tokens());
  const bool limited = context.memory->device().is_host();  // what the host can do does not limit a GPU
  Figure figure{.name = bench.name, .work = tokens, .unit = "tokens", .limit_name = limited ? kMatrixPeak : ""};
  figure.limited_work = tokens * stepper.flops_per_token();
  const auto step = [&] { stepper.step(); };
  const auto sum_of_all = [&](const std::function<double()>& rate) {
    ranks.barrier().wait();
    double sum = rate();
    all_reduce_values(ranks, context, std::span(&sum, 1));
    return sum;
  };
  const double start_up = seconds_since_start();
  step(), step();  // what a step takes is allocated in these
  const int64_t asked = context.memory->system_allocations();
  step();  // pages of the arena (tensor/arena.h) are touched for the first time in this one
  OperationBooks breakdown(ranks.size(), limited);
  timeline->start();
  for (int i = 0; i < samples; ++i) {
    const auto measure_peak = [&] { return sum_of_all([&] { return limits.matrix(bench.layout.sharding.dtype); }); };
    double peak = limited ? measure_peak() : 0;
    const double triad = limited ? sum_of_all(limits.memory) : 0;
    ranks.barrier().wait();
    timeline->take();
    figure.seconds.values.push_back(seconds_of(step));
    if (limited) {
      // All ranks measure again, whatever their own clocks say of the step.
      peak = std::max({peak, measure_peak(), figure.reached(figure.seconds.values.back())});
      figure.limits.values.push_back(peak);
    }
    breakdown.add(operations_of(timeline->take()), figure.seconds.values.back(), peak, triad);
  }
  const auto late = static_cast<double>(context.memory->system_allocations() - asked);
  figure.facts = {{"start-up", start_up, "s"}, {"late allocations", late}};
  return {std::move(figure), breakdown.figures()};
}

Samples measure_steps(Communicator& ranks, const Context& context, const StepBench& bench) {
  Context own = context;
  // A GPU has one Memory, that of its compute stream: what is left there is counted no more.
  if (context.memory->device().is_host()) own.memory = Memory::create();
  Samples seconds;
  {
    Stepper stepper(ranks, own, bench);
    stepper.step(), stepper.step();  // what a step takes is allocated in these
    do {
      ranks.barrier().wait();
      double slowest = seconds_of([&] { stepper.step(); });
      all_reduce_values(ranks, own, std::span(&slowest, 1), ReduceOp::max);
      seconds.values.push_back(slowest);
    } while (!tell_enough(seconds));
  }
  if (own.memory == context.memory) context.memory->ledger().reset_peaks();
  return seconds;
}

}  // namespace nought
