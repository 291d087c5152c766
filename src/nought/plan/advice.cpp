#include "nought/plan/advice.h"

#include <algorithm>
#include <optional>
#include <string>

#include <fmt/ranges.h>

#include "nought/base/text.h"
#include "nought/plan/fitting_tiles.h"
#include "nought/plan/fitting_update.h"
#include "nought/plan/table.h"
#include "nought/train/trainer.h"

namespace nought {

namespace {

constexpr size_t kMostAdvice = 3;

/// A layout that keeps the batch, and how much it is changed: smaller batches of validations and stages up to 2 cost
/// nothing but their name, stage 3 half as much traffic again, smaller products some speed, recomputation a few percent
/// of the computation or a third of it, MLPs in tiles somewhat less, and saved inputs on the host a copy each way.
struct Candidate {
  int stages = 0, halvings = 0;
  int recompute = 0;       // steps up from the layout's
  bool tiles = false;      // whether MLPs are computed in tiles of tokens
  bool evaluates = false;  // whether validations may have less rows
  Layout layout;

  int cost() const {
    return stages + (layout.zero_stage == 3 && stages > 0 ? 2 : 0) + 2 * halvings + (tiles ? 3 : 0) +
           (evaluates ? 1 : 0) +
           (recompute == 0                                  ? 0
            : layout.recompute.mode == Recompute::selective ? 1
            : layout.recompute.tier.pool == Pool::device    ? 4
                                                            : 5);
  }
  bool contains(const Candidate& other) const {
    return stages >= other.stages && halvings >= other.halvings && recompute >= other.recompute &&
           tiles >= other.tiles && evaluates >= other.evaluates;
  }
};

/// What saves more activations, step by step; each is a change from the one before it.
std::vector<RecomputeOptions> recompute_steps(const RecomputeOptions& from) {
  std::vector<RecomputeOptions> steps{from};
  for (const Recompute mode : {Recompute::selective, Recompute::full}) {
    if (mode <= from.mode) continue;
    steps.push_back(from);
    steps.back().mode = mode;
  }
  if (from.tier.pool == Pool::device) {
    steps.push_back(steps.back());
    steps.back().tier.pool = Pool::host;
  }
  return steps;
}

/// True if MLPs can be computed in more tiles than one, and are not yet.
bool can_tile(const ModelConfig& config, const Layout& layout) {
  RecomputeOptions tiled;
  tiled.mlp_tiles = 0;
  const int64_t tokens = layout.micro_batch * ceil_div(layout.seq_length, layout.context_ranks);
  return layout.recompute.mlp_tiles == 1 && config.has_mlp() && tiled.mlp_tiles_of(tokens, config.hidden_size) > 1;
}

std::vector<Candidate> candidates(const ModelConfig& config, const Layout& layout) {
  std::vector<Candidate> all;
  const int last_stage = layout.shard_ranks() * layout.context_ranks > 1 ? 3 : layout.zero_stage;
  const std::vector<RecomputeOptions> steps = recompute_steps(layout.recompute);
  const bool can_halve = layout.sharding.virtual_ranks == 0;  // else a micro-batch is a virtual rank's
  for (int stage = layout.zero_stage; stage <= last_stage; ++stage)
    for (size_t recompute = 0; recompute < steps.size(); ++recompute)
      for (int halvings = 0; halvings == 0 || (can_halve && layout.micro_batch % (int64_t{1} << halvings) == 0);
           ++halvings) {
        Candidate each{.stages = stage - layout.zero_stage,
                       .halvings = halvings,
                       .recompute = static_cast<int>(recompute),
                       .layout = layout.at_zero_stage(stage)};
        each.layout.recompute = steps[recompute];
        each.layout.micro_batch >>= halvings;
        each.layout.accumulation <<= halvings;
        if (layout.evaluation_follows && layout.evaluation_rows > 0)
          each.layout.evaluation_rows = each.layout.micro_batch;
        for (const bool tiles : {false, true}) {
          if (tiles && !can_tile(config, each.layout)) continue;
          each.tiles = tiles, each.evaluates = false;
          if (tiles) each.layout.recompute.mlp_tiles = 0;
          if (each.cost() > 0) all.push_back(each);
          each.evaluates = true;
          if (each.layout.evaluation_rows > 1) all.push_back(each);
        }
      }
  std::stable_sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) { return a.cost() < b.cost(); });
  return all;
}

std::string describe(const Candidate& candidate) {
  std::vector<std::string> parts;
  const Layout& layout = candidate.layout;
  if (candidate.stages > 0) parts.push_back(fmt::format("zero_optimization.stage {}", layout.zero_stage));
  if (candidate.recompute > 0) parts.push_back(fmt::format("training.recompute {}", name_of(layout.recompute.mode)));
  if (candidate.recompute > 0 && layout.recompute.tier.pool == Pool::host)
    parts.push_back("activation_checkpointing.cpu_checkpointing true");
  if (candidate.tiles) parts.push_back("training.tiled_mlp true");
  if (candidate.halvings > 0)
    parts.push_back(fmt::format("micro-batch {} with accumulation {}", layout.micro_batch, layout.accumulation));
  if (candidate.evaluates)
    parts.push_back(fmt::format("training.per_device_eval_batch_size {}", layout.evaluation_rows));
  return fmt::format("{}", fmt::join(parts, " and "));
}

/// The prediction of a candidate if it fits. Of one that changes validations, the number of rows becomes the largest
/// that fits.
std::optional<Prediction> prediction_that_fits(const ModelConfig& config, Candidate& candidate,
                                               const MemoryBudgets& budgets) {
  const auto predicted = [&](int64_t rows) {
    Layout layout = candidate.layout;
    layout.evaluation_rows = rows;
    return predict(config, layout);
  };
  const auto fits = [&](const Prediction& each) { return budgets.hold(each.most()); };
  if (candidate.evaluates && !fits(predicted(0))) return std::nullopt;  // training alone is too much
  for (int64_t rows = candidate.layout.evaluation_rows / (candidate.evaluates ? 2 : 1);; rows /= 2) {
    const Prediction prediction = predicted(rows);
    candidate.layout.evaluation_rows = rows;
    if (fits(prediction)) return prediction;
    if (!candidate.evaluates || rows <= 1) return std::nullopt;
  }
}

/// Where Units are what is too large: the run with tiles of them at stage 3, as it is or with all recomputation.
std::vector<Advice> tiles_that_fit(const ModelConfig& config, const Layout& layout, const MemoryBudgets& budgets) {
  if (layout.recompute.unit_tiles > 1 || layout.fp8.scaling != Fp8Scaling::none ||
      gives_direction(layout.sharding.optimizer.method) ||
      (layout.shard_ranks() * layout.context_ranks == 1 && layout.sharding.offload_param.tier.pool == Pool::device))
    return {};
  const std::vector<RecomputeOptions> steps = recompute_steps(layout.recompute);
  for (size_t step = 0; step < steps.size(); step += std::max<size_t>(steps.size() - 1, 1)) {
    Candidate each{
        .stages = 3 - layout.zero_stage, .recompute = static_cast<int>(step), .layout = layout.at_zero_stage(3)};
    each.layout.recompute = steps[step];
    const std::optional<Prediction> found = fewest_tiles_that_fit(config, each.layout, budgets);
    if (!found) continue;
    const std::string besides = describe(each);
    return {{fmt::format("{}{}training.memory_centric_tiling {}", besides, besides.empty() ? "" : " and ",
                         found->layout.recompute.unit_tiles),
             *found}};
  }
  return {};
}

/// Gradients go where optimizer states and parameters are, unless training.offload_gradients or what keeps them in
/// memory say otherwise.
void move_gradients(Layout& layout) {
  OffloadOptions& options = layout.sharding.offload_optimizer;
  options.gradients_in_file = !layout.gradients_stay && options.tier.pool == Pool::file && options.ratio == 1 &&
                              !options.delay_after && layout.replicas == 1;
}

/// Something that may lie in files. Each move is slower than those before it, and all are slower than other changes.
struct Move {
  const char* change;
  bool (*made)(const Layout&);
  void (*make)(Layout&);
};
constexpr Move kMoves[] = {
    {"zero_optimization.offload_optimizer.device nvme",
     [](const Layout& layout) { return layout.sharding.offload_optimizer.tier.pool == Pool::file; },
     [](Layout& layout) { layout.sharding.offload_optimizer.tier.pool = Pool::file; }},
    {"zero_optimization.offload_param.device nvme (stage 3, max_in_cpu 0)",
     [](const Layout& layout) { return layout.sharding.offload_param.tier.pool == Pool::file; },
     [](Layout& layout) {
       layout.zero_stage = 3, layout.sharding.offload_param.tier.pool = Pool::file;
       move_gradients(layout);
     }},
    {"training.recompute full with training.offload_inputs file",
     [](const Layout& layout) { return layout.recompute.tier.pool == Pool::file; },
     [](Layout& layout) {
       const ShardedModel::Options& states = layout.sharding;
       layout.recompute.mode = Recompute::full, layout.recompute.tier.pool = Pool::file;
       layout.recompute.tier.folder =
           (states.offload_optimizer.tier.pool == Pool::file ? states.offload_optimizer.tier.folder
                                                             : states.offload_param.tier.folder);
       layout.recompute.contiguous = false;  // they are in files
     }},
};

/// The layout with all of that in files.
Layout in_files(Layout layout) {
  for (const Move& move : kMoves)
    if (!move.made(layout)) move.make(layout);
  return layout;
}

/// The least that any of the candidates needs.
int64_t least_peak(const ModelConfig& config, const Layout& layout) {
  int64_t least = predict(config, layout).most().peak_total;
  for (Candidate& each : candidates(config, layout)) {
    if (each.evaluates) each.layout.evaluation_rows = 1;
    least = std::min(least, predict(config, each.layout).most().peak_total);
  }
  return least;
}

/// Changes that leave states where they are.
std::vector<Advice> changes_in_memory(const ModelConfig& config, const Layout& layout, const MemoryBudgets& budgets) {
  std::vector<Advice> advice;
  std::vector<Candidate> taken;
  for (Candidate& each : candidates(config, layout)) {
    if (std::any_of(taken.begin(), taken.end(), [&](const Candidate& other) { return each.contains(other); })) continue;
    const std::optional<Prediction> prediction = prediction_that_fits(config, each, budgets);
    if (!prediction) continue;
    taken.push_back(each);
    const std::string peak = format_bytes(prediction->most().peak_total);
    // What helps no more than a change that costs less is no advice.
    if (std::any_of(advice.begin(), advice.end(),
                    [&](const Advice& other) { return format_bytes(other.prediction.most().peak_total) == peak; }))
      continue;
    advice.push_back({describe(each), *prediction});
    if (advice.size() == kMostAdvice) break;
  }
  return advice;
}

/// QLoRA: the frozen model of an adapter in codes of 4 bits, alone or with other changes.
std::vector<Advice> codes_that_fit(const ModelConfig& config, const Layout& layout, const MemoryBudgets& budgets) {
  const std::optional<Layout> coded = with_four_bits(config, layout);
  if (!coded) return {};
  constexpr std::string_view kChange = "quantization_config.load_in_4bit (nf4, double quantization)";
  const Prediction alone = predict(config, *coded);
  if (budgets.hold(alone.most())) return {{std::string(kChange), alone}};
  std::vector<Advice> advice = changes_in_memory(config, *coded, budgets);
  for (Advice& each : advice) each.change = fmt::format("{} and {}", kChange, each.change);
  return advice;
}

}  // namespace

std::optional<Layout> with_four_bits(const ModelConfig& config, const Layout& layout) {
  const auto& layers = config.adapter.layers;
  if (config.adapter.empty() || layout.freezing.codes || layout.tensor_ranks > 1 ||
      std::any_of(layers.begin(), layers.end(),
                  [](const auto& each) { return each.second.decomposed || takes_of_the_base(each.second.start); }))
    return std::nullopt;
  Layout coded = layout;
  coded.freezing.codes = WeightCodes{CodeKind::nf4, /*double_quantized=*/true};
  return coded;
}

std::vector<Advice> changes_that_fit(const ModelConfig& config, const Layout& layout, const MemoryBudgets& budgets) {
  std::vector<Advice> advice = changes_in_memory(config, layout, budgets);
  std::vector<Advice> codes = codes_that_fit(config, layout, budgets);
  if (!advice.empty() && !codes.empty()) {
    advice.resize(std::min(advice.size(), kMostAdvice - 1));
    advice.push_back(std::move(codes.front()));
  } else if (advice.empty()) {
    advice = std::move(codes);
  }
  if (advice.empty()) advice = tiles_that_fit(config, layout, budgets);
  Layout moved = layout;
  std::vector<std::string> made;
  for (const Move& move : kMoves) {
    if (!advice.empty()) break;
    if (move.made(layout)) continue;
    move.make(moved);
    made.emplace_back(move.change);
    const std::string changes = fmt::format("{}", fmt::join(made, " and "));
    const Prediction prediction = predict(config, moved);
    if (budgets.hold(prediction.most())) return {{changes, prediction}};
    advice = changes_in_memory(config, moved, budgets);
    if (advice.empty()) advice = tiles_that_fit(config, moved, budgets);
    for (Advice& each : advice) each.change = fmt::format("{} and {}", changes, each.change);
  }
  return advice;
}

namespace {

/// The flags of an advice; "" if none say it.
std::string flags_for(const Layout& layout, const Advice& advice, const MemoryBudgets& budgets,
                      const PastedRun& pasted) {
  if (!pasted.run_with) return "";
  const auto fits = [&](const RunPlan& run) {
    const RunPlan plan = with_fitting_update(run);  // as the run does that it is pasted to
    const ModelConfig config = model_config_of(plan);
    for (const Prediction& each : predict_places(config, layout_of(plan)))
      if (!budgets.hold(each.most())) return false;
    return true;
  };
  const auto settings = settings_of(layout, advice.prediction.layout, pasted.folder, pasted.run_with, fits);
  return settings ? flags_of(*settings) : "";
}

}  // namespace

std::string describe_changes(const ModelConfig& config, const Layout& layout, const MemoryBudgets& budgets,
                             const std::optional<MachineRates>& rates, const PastedRun& pasted) {
  std::vector<Advice> advice = changes_that_fit(config, layout, budgets);
  const auto seconds = [&](const Prediction& each) { return step_time(config, each, *rates).seconds(); };
  const double now = rates && !advice.empty() ? seconds(predict(config, layout)) : 0;
  if (rates)
    std::stable_sort(advice.begin(), advice.end(),
                     [&](const Advice& a, const Advice& b) { return seconds(a.prediction) < seconds(b.prediction); });
  std::string text;
  for (const Advice& each : advice) {
    const double longer = rates ? seconds(each.prediction) / now - 1 : 0;
    const std::string costs = format_bytes(each.prediction.most().peak_total) +
                              (longer < 0.005 ? "" : fmt::format(", and {:.0f}% more time per step", 100 * longer));
    const std::string flags = flags_for(layout, each, budgets, pasted);
    text += flags.empty() ? fmt::format("would fit: {}, which takes {}\n", each.change, costs)
                          : fmt::format("would fit, in {}:\n    {}\n", costs, flags);
  }
  if (!advice.empty()) return text;
  return fmt::format(
      "no stage, recompute, tiles or batch size fits: the least that {} rank{} can do is {} each; use more ranks, "
      "shorter "
      "sequences or a smaller model; \"cpu\" as the device of offload_optimizer or offload_param saves nothing, as the "
      "device is the host\n",
      layout.ranks, layout.ranks == 1 ? "" : "s",
      format_bytes(std::min(least_peak(config, layout), least_peak(config, in_files(layout)))));
}

std::string explain_refusal(const MemoryLimitError& refusal, const RunPlan& plan, const PastedRun& pasted) {
  return fmt::format("{}\n{}", refusal.what(),
                     describe_changes(model_config_of(plan), layout_of(plan), budgets_of(plan), {}, pasted));
}

void require_memory(const RunPlan& plan, const ModelConfig& config, const PastedRun& pasted) {
  const MemoryBudgets budgets = budgets_of(plan);
  if (budgets.none()) return;
  const Layout layout = layout_of(plan);
  for (const Prediction& each : predict_places(config, layout)) {
    const RankMemory& memory = each.most();
    if (budgets.hold(memory)) continue;
    const bool device = !MemoryBudgets{.device = budgets.device}.hold(memory);
    const std::string much =
        device ? fmt::format("{} per rank at the peak, as predicted, are more than training.device_memory, {}",
                             format_bytes(memory.peak_total), format_bytes(budgets.device))
               : fmt::format("{} in the host's RAM, as predicted, are more than training.host_memory, {}",
                             format_bytes(memory.ram_peak), format_bytes(budgets.host));
    throw MemoryLimitError(fmt::format("{}{}\n{}", much, each.at_most ? "\n" + bound_text(memory) : "",
                                       describe_changes(config, layout, budgets, {}, pasted)));
  }
}

}  // namespace nought
