#include "nought/observe/profile.h"

#include <algorithm>
#include <limits>

#include <fmt/core.h>

#include "nought/base/text.h"
#include "nought/io/atomic_file.h"

namespace nought {

namespace {

constexpr size_t kOperationRows = 16;
constexpr int64_t kFirstSteps = 3;
constexpr int kNameWidth = 38;

std::string time_of(double seconds) {
  return seconds < 1 ? fmt::format("{:.2f} ms", 1e3 * seconds) : fmt::format("{:.2f} s", seconds);
}
/// Nothing where there is nothing: operations that only move bytes have no FLOPs.
std::string amount(double work) { return work > 0 ? format_rate(work, "") : ""; }
std::string rate(double work, double seconds) { return seconds > 0 ? amount(work / seconds) : ""; }
std::string percent(double part) { return fmt::format("{:.1f}%", 100 * part); }

std::string row(std::string_view name, std::initializer_list<std::string> cells) {
  std::string text = fmt::format("{:<{}}", name, kNameWidth);
  for (const std::string& cell : cells) text += fmt::format("{:>11}", cell);
  text.resize(text.find_last_not_of(" ") + 1);
  return text += "\n";
}

std::string header(const StepProfile& p) {
  return fmt::format(
      "profile of step {} on rank 0 of {}, ZeRO stage {}\n"
      "{} with {} parameters in {}, {} of them kept by this rank; {} micro-batch{} of {} x {} tokens\n{}",
      p.step, p.world_size, p.zero_stage, p.model.name, format_count(static_cast<double>(p.model.parameters)), p.dtype,
      format_count(static_cast<double>(p.rank_parameters)), p.accumulation, p.accumulation == 1 ? "" : "es",
      p.micro_batch, p.seq_length,
      p.step <= kFirstSteps
          ? "the first steps also allocate what later ones use again: profile_step 4 shows a usual one\n"
          : "");
}

std::string passes(const StepProfile& p) {
  std::string text = row("pass", {"time", "of step", "FLOP", "FLOP/s"});
  const auto add = [&](const char* name, double seconds, double flops) {
    text += row(name, {time_of(seconds), percent(seconds / p.seconds), amount(flops), rate(flops, seconds)});
  };
  const double forward = p.model.forward.work.flops, backward = p.model.backward.work.flops;
  const double optimizer = p.optimizer.work.flops;
  add("forward and the head's gradients", p.times.forward, forward);
  add("backward", p.times.backward, backward);
  add("optimizer", p.times.optimizer, optimizer);
  add("the step", p.seconds, forward + backward + optimizer);
  const auto estimate = [&](const std::string& name, double flops) {
    text += row(name, {"", percent(flops / p.seconds / p.peak_flops), amount(flops), rate(flops, p.seconds)});
  };
  estimate("model FLOPs (6 Psi + 6 L h s), MFU", p.model_flops);
  if (p.options.recompute_factor > 0)
    estimate(fmt::format("and {:g} x forward for recomputation", p.options.recompute_factor),
             p.model_flops * (1 + p.options.recompute_factor / 3));
  return text;
}

std::string operations(const StepProfile& p) {
  std::string text = row("operation", {"runs", "time", "of step", "FLOP", "FLOP/s", "bytes", "B/s"});
  const auto add = [&](const std::string& name, const OperationTotal& total) {
    text += row(name, {fmt::format("{}", total.runs), time_of(total.seconds), percent(total.seconds / p.seconds),
                       amount(total.work.flops), rate(total.work.flops, total.seconds), amount(total.work.bytes),
                       rate(total.work.bytes, total.seconds)});
  };
  std::vector<std::pair<std::string, OperationTotal>> sorted(p.operations.begin(), p.operations.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  OperationTotal others;
  double rest = p.seconds;
  for (size_t i = 0; i < sorted.size(); ++i) {
    const auto& [name, total] = sorted[i];
    rest -= total.seconds;
    i < kOperationRows ? add(name, total) : void(others += total);
  }
  if (sorted.size() > kOperationRows) add(fmt::format("{} others", sorted.size() - kOperationRows), others);
  return text + row("the rest: collectives, waiting, tape", {"", time_of(rest), percent(rest / p.seconds)});
}

std::string module_row(const std::string& name, const ModuleProfile& module, const StepProfile& p) {
  return row(name,
             {module.parameters > 0 ? format_count(static_cast<double>(module.parameters)) : "",
              time_of(module.forward.seconds), time_of(module.backward.seconds), percent(module.seconds() / p.seconds),
              amount(module.flops()), rate(module.flops(), module.seconds())});
}

/// "block" for "block.3".
std::string kind_of(const std::string& name) {
  const size_t dot = name.find_last_not_of("0123456789");
  return dot != std::string::npos && dot + 1 < name.size() && name[dot] == '.' ? name.substr(0, dot) : name;
}

struct Kind {
  int64_t count = 0;
  ModuleProfile together;
};

/// The kinds of modules at one depth below a module, longest first; empty below the innermost.
void add_kinds(const ModuleProfile& module, int64_t depth, std::vector<Kind>& kinds) {
  for (const ModuleProfile& each : module.inside)
    if (depth > 1) add_kinds(each, depth - 1, kinds);
  if (depth > 1) return;
  for (const ModuleProfile& each : module.inside) {
    const std::string name = kind_of(each.name);
    auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const Kind& one) { return one.together.name == name; });
    if (kind == kinds.end()) kind = kinds.insert(kinds.end(), Kind{0, {.name = name}});
    kind->count += 1;
    kind->together.parameters += each.parameters;
    kind->together.forward += each.forward, kind->together.backward += each.backward;
  }
}

std::string top_modules(const StepProfile& p, int64_t deepest) {
  std::string text = module_row(fmt::format("depth 0: {}", p.model.name), p.model, p);
  for (int64_t depth = 1; depth <= deepest; ++depth) {
    std::vector<Kind> kinds;
    add_kinds(p.model, depth, kinds);
    if (kinds.empty()) break;
    std::stable_sort(kinds.begin(), kinds.end(),
                     [](const Kind& a, const Kind& b) { return a.together.seconds() > b.together.seconds(); });
    for (size_t i = 0; i < kinds.size() && static_cast<int64_t>(i) < p.options.top_modules; ++i)
      text += module_row(fmt::format("{:<9}{}{}", i == 0 ? fmt::format("depth {}:", depth) : "", kinds[i].together.name,
                                     kinds[i].count > 1 ? fmt::format(" x {}", kinds[i].count) : ""),
                         kinds[i].together, p);
  }
  return text;
}

std::string every_module(const ModuleProfile& module, int64_t depth, int64_t deepest, const StepProfile& p) {
  std::string text = module_row(fmt::format("{:{}}{}", "", 2 * depth, module.name), module, p);
  if (depth < deepest)
    for (const ModuleProfile& each : module.inside) text += every_module(each, depth + 1, deepest, p);
  return text;
}

std::string modules(const StepProfile& p) {
  const int64_t deepest = p.options.module_depth < 0 ? std::numeric_limits<int64_t>::max() : p.options.module_depth;
  const auto title = [](const std::string& name) {
    return row(name, {"parameters", "forward", "backward", "of step", "FLOP", "FLOP/s"});
  };
  std::string text = title(p.options.top_modules == 1 ? "longest module" : "longest modules") + top_modules(p, deepest);
  if (p.options.detailed) text += fmt::format("\n{}{}", title("every module"), every_module(p.model, 0, deepest, p));
  return text;
}

}  // namespace

std::string to_text(const StepProfile& profile) {
  return fmt::format("{}\n{}\n{}\n{}", header(profile), passes(profile), operations(profile), modules(profile));
}

void ProfileWriter::on_step(const StepReport& report) {
  if (report.profile && !report.profile->options.output_file.empty())
    write_text_atomically(report.profile->options.output_file, to_text(*report.profile));
}

}  // namespace nought
