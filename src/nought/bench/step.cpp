#include <algorithm>
#include <ctime>
#include <map>

#include <unistd.h>

#include "nought/base/process.h"
#include "nought/base/text.h"
#include "nought/bench/bench.h"
#include "nought/diagnose/profile.h"
#include "nought/kernels/timed.h"

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

/// OLMoE's experts in the place of GPT-2 124M's MLPs: 124M of 520M parameters work on a token.
ModelConfig olmoe_124m_active() {
  return ModelConfig::from_json({{"model_type", "olmoe"},
                                 {"vocab_size", 50304},
                                 {"hidden_size", 768},
                                 {"intermediate_size", 256},
                                 {"num_hidden_layers", 12},
                                 {"num_attention_heads", 12},
                                 {"num_key_value_heads", 12},
                                 {"num_experts", 64},
                                 {"num_experts_per_tok", 8},
                                 {"max_position_embeddings", 1024},
                                 {"tie_word_embeddings", true}});
}

/// Qwen 3.5's layers in the place of GPT-2 124M's: the gated delta rule in nine of twelve, gated attention in three.
ModelConfig qwen3_5_114m() {
  return ModelConfig::from_json({{"model_type", "qwen3_5_text"},
                                 {"vocab_size", 32000},
                                 {"hidden_size", 768},
                                 {"intermediate_size", 2048},
                                 {"num_hidden_layers", 12},
                                 {"num_attention_heads", 6},
                                 {"num_key_value_heads", 2},
                                 {"head_dim", 128},
                                 {"linear_num_key_heads", 6},
                                 {"linear_num_value_heads", 6},
                                 {"linear_key_head_dim", 128},
                                 {"linear_value_head_dim", 128},
                                 {"max_position_embeddings", 1024},
                                 {"tie_word_embeddings", true}});
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

TrialStep named_step(const std::string& name, DType dtype) {
  TrialStep trial{.name = name};
  Layout& layout = trial.layout;
  layout.sharding = {.dtype = dtype, .gradient_dtype = dtype, .overlap = true, .optimizer = {}};
  if (name == "W1" || name == "W3" || name == "W4") {
    trial.config = gpt2_124m();
    layout.micro_batch = name == "W4" ? 32 : 4, layout.seq_length = name == "W3" ? 64 : 1024;
  } else if (name == "W2") {
    trial.config = llama_125m();
    layout.micro_batch = 2, layout.seq_length = 2048;
  } else if (name == "W5") {
    trial.config = olmoe_124m_active();
    layout.micro_batch = 4, layout.seq_length = 1024;
  } else if (name == "W6") {
    trial.config = qwen3_5_114m();
    layout.micro_batch = 2, layout.seq_length = 1024;
  } else {
    fail<ConfigError>("unknown work {}: W1, W2, W3, W4, W5 or W6", name);
  }
  return trial;
}

StepFigures bench_step(Communicator& ranks, const Context& context, const Limits& limits, const TrialStep& trial,
                       int samples) {
  const auto timeline = std::make_shared<Timeline>();
  Context timed = context;
  timeline->follow(context.stream);
  timed.kernels = make_timed_kernels(context.kernels, timeline);
  TrialSteps steps(ranks, timed, trial);
  const auto tokens = static_cast<double>(steps.tokens());
  const bool limited = context.memory->device().is_host();  // what the host can do does not limit a GPU
  Figure figure{.name = trial.name, .work = tokens, .unit = "tokens", .limit_name = limited ? kMatrixPeak : ""};
  figure.limited_work = tokens * steps.flops_per_token();
  const auto step = [&] { steps.step(); };
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
    const auto measure_peak = [&] { return sum_of_all([&] { return limits.matrix(trial.layout.sharding.dtype); }); };
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

}  // namespace nought
