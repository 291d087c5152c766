#include "nought/simulate/report.h"

#include <cmath>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include "nought/base/error.h"
#include "nought/base/text.h"

namespace nought {

namespace {

constexpr double kDay = 86400, kHour = 3600;

struct Rates {
  double tokens = 0, per_rank = 0, mfu = 0, mfu_whole = 0, days = 0, cost = 0;
};

/// MFU is a share of the bf16 peak of the data sheet, also for FP8.
Rates rates_of(const RankedLayout& layout, const Cluster& cluster, const TrainingGoal& goal) {
  const SimulatedRun& run = layout.run;
  Rates rates;
  rates.tokens = run.tokens_per_step() / layout.step.seconds;
  rates.per_rank = rates.tokens / run.ranks();
  rates.mfu = rates.per_rank * run.model.flops_per_token(run.sequence, true) / cluster.flops.bf16;
  rates.mfu_whole = rates.per_rank * run.model.flops_per_token(run.sequence, false) / cluster.flops.bf16;
  rates.days = goal.tokens / rates.tokens / kDay;
  rates.cost = goal.tokens / rates.tokens / kHour * run.ranks() * goal.price;
  return rates;
}

std::string seconds_text(double seconds) {
  return seconds < 1 ? fmt::format("{:.3g} ms", 1000 * seconds) : fmt::format("{:.4g} s", seconds);
}

std::string bytes_text(double bytes) { return format_bytes(static_cast<int64_t>(bytes)); }

std::string goal_text(const Rates& rates, const TrainingGoal& goal) {
  if (goal.tokens <= 0) return "";
  std::string text = fmt::format("{} tokens take {:.1f} days", format_count(goal.tokens), rates.days);
  if (goal.price > 0)
    text += fmt::format(" and cost {:.3g} million at {} per GPU and hour", rates.cost / 1e6, goal.price);
  return text + "\n";
}

}  // namespace

double parse_tokens(const std::string& text) {
  char* end = nullptr;
  double number = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  constexpr std::pair<const char*, double> kUnits[] = {{"", 1}, {"K", 1e3}, {"M", 1e6}, {"B", 1e9}, {"T", 1e12}};
  double factor = 0;
  for (const auto& [name, value] : kUnits)
    if (unit == name) factor = value;
  number *= factor;
  require<ConfigError>(end != text.c_str() && std::isfinite(number) && number > 0,
                       "--tokens {}: expected a number above 0, perhaps with K, M, B or T behind it", text);
  return number;
}

std::string to_text(const RankedLayout& layout, const Cluster& cluster, const TrainingGoal& goal) {
  const Rates rates = rates_of(layout, cluster, goal);
  std::string text = fmt::format("{} on {} x {}, as {} does\n{}\n\n", layout.run.model.name, layout.run.ranks(),
                                 cluster.name, layout.run.software.name, layout.run.str());
  for (const StepPart& part : layout.step.parts())
    text += fmt::format("  {:<28}{:>12}{:>7.1f}%\n", part.name, seconds_text(part.seconds()),
                        100 * part.seconds() / layout.step.seconds);
  text += fmt::format("  {:<28}{:>12}\n", "whole step", seconds_text(layout.step.seconds));
  if (layout.step.hidden > 0)
    text += fmt::format("  {:<28}{:>12}\n", "exchanges that are hidden", seconds_text(layout.step.hidden));
  text += fmt::format("\n{} tokens/s, {} of each GPU; MFU {:.1f}%, or {:.1f}% if attention counts whole\n",
                      format_count(rates.tokens), format_count(rates.per_rank), 100 * rates.mfu, 100 * rates.mfu_whole);
  const SimulatedMemory& m = layout.memory;
  text += fmt::format("{} of {} per GPU: parameters {}, gradients {}, optimizer {}, activations {}, workspace {}{}\n",
                      bytes_text(m.total()), bytes_text(cluster.memory), bytes_text(m.parameters),
                      bytes_text(m.gradients), bytes_text(m.optimizer), bytes_text(m.activations),
                      bytes_text(m.workspace), m.total() > cluster.memory ? ": does not fit" : "");
  return text + goal_text(rates, goal);
}

OrderedJson to_json(const RankedLayout& layout, const Cluster& cluster, const TrainingGoal& goal) {
  const SimulatedRun& run = layout.run;
  const Rates rates = rates_of(layout, cluster, goal);
  OrderedJson parts = OrderedJson::object();
  for (const StepPart& part : layout.step.parts()) parts[part.name] = part.seconds();
  OrderedJson json{{"cluster", cluster.name},
                   {"ranks", run.ranks()},
                   {"software", run.software.name},
                   {"layout",
                    {{"tp", run.tp},
                     {"pp", run.pp},
                     {"vp", run.vp},
                     {"cp", run.cp},
                     {"ep", run.ep},
                     {"dp", run.dp},
                     {"schedule", run.pp > 1 ? name_of(run.schedule) : ""},
                     {"sequence_parallel", run.sequence_parallel},
                     {"zero_stage", run.zero_stage},
                     {"micro_batch", run.micro_batch},
                     {"gradient_accumulation_steps", run.micro_batches()},
                     {"recompute", name_of(run.recompute)},
                     {"offload_optimizer", run.offload_states}}},
                   {"step_seconds", layout.step.seconds},
                   {"parts", parts},
                   {"hidden_seconds", layout.step.hidden},
                   {"tokens_per_second", rates.tokens},
                   {"tokens_per_second_per_rank", rates.per_rank},
                   {"mfu", rates.mfu},
                   {"mfu_whole_attention", rates.mfu_whole},
                   {"memory",
                    {{"parameters", layout.memory.parameters},
                     {"gradients", layout.memory.gradients},
                     {"optimizer", layout.memory.optimizer},
                     {"activations", layout.memory.activations},
                     {"workspace", layout.memory.workspace},
                     {"total", layout.memory.total()},
                     {"fits", layout.memory.total() <= cluster.memory}}}};
  if (goal.tokens > 0) json["days"] = rates.days;
  if (goal.tokens > 0 && goal.price > 0) json["cost"] = rates.cost;
  return json;
}

std::string to_text(const LayoutRanking& ranking, const Cluster& cluster, const TrainingGoal& goal) {
  std::string text =
      fmt::format("{} layouts; the fastest of those that fit {} x {}:\n\n      step   MFU    memory  layout\n",
                  ranking.considered, ranking.best.front().run.ranks(), cluster.name);
  for (const RankedLayout& each : ranking.best)
    text += fmt::format("{:>10} {:>4.1f}% {:>9}  {}\n", seconds_text(each.step.seconds),
                        100 * rates_of(each, cluster, goal).mfu, bytes_text(each.memory.total()), each.run.str());
  constexpr size_t kShown = 12;
  if (!ranking.left_out.empty()) text += "\nleft out:\n";
  for (size_t i = 0; i < std::min(kShown, ranking.left_out.size()); ++i)
    text += fmt::format("  {} {}\n", ranking.left_out[i].family, ranking.left_out[i].reason);
  if (ranking.left_out.size() > kShown)
    text += fmt::format("  and {} more: --json has all\n", ranking.left_out.size() - kShown);
  return text + "\n" + to_text(ranking.best.front(), cluster, goal);
}

OrderedJson to_json(const LayoutRanking& ranking, const Cluster& cluster, const TrainingGoal& goal) {
  OrderedJson layouts = OrderedJson::array(), left_out = OrderedJson::array();
  for (const RankedLayout& each : ranking.best) layouts.push_back(to_json(each, cluster, goal));
  for (const LeftOut& each : ranking.left_out) left_out.push_back({{"family", each.family}, {"reason", each.reason}});
  return {{"considered", ranking.considered}, {"layouts", layouts}, {"left_out", left_out}};
}

}  // namespace nought
