#include "nought/observe/profile.h"

#include <algorithm>
#include <limits>

#include <fmt/core.h>

#include "nought/base/lines.h"
#include "nought/base/text.h"
#include "nought/io/atomic_file.h"

namespace nought {

namespace {

constexpr size_t kOperationRows = 16;
constexpr int64_t kFirstSteps = 3;

std::string time_of(double seconds) {
  return seconds < 1 ? fmt::format("{:.2f} ms", 1e3 * seconds) : fmt::format("{:.2f} s", seconds);
}
/// Nothing where there is nothing: operations that only move bytes have no FLOPs.
std::string amount(double work) { return work > 0 ? format_rate(work, "") : ""; }
std::string rate(double work, double seconds) { return seconds > 0 ? amount(work / seconds) : ""; }
std::string percent(double part) { return fmt::format("{:.1f}%", 100 * part); }

/// A table of 115 columns, or less where there is less room.
Table table_of(std::vector<int> ranks, std::vector<std::string> titles) {
  return {.ranks = std::move(ranks), .rows = {std::move(titles)}, .name_columns = 38, .cell_columns = 9};
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

std::string passes(const StepProfile& p, int width) {
  Table table = table_of({0, 1, 3, 2}, {"pass", "time", "of step", "FLOP", "FLOP/s"});
  const auto add = [&](const char* name, double seconds, double flops) {
    table.rows.push_back({name, time_of(seconds), percent(seconds / p.seconds), amount(flops), rate(flops, seconds)});
  };
  const double forward = p.model.forward.work.flops, backward = p.model.backward.work.flops;
  const double optimizer = p.optimizer.work.flops;
  add("forward and the head's gradients", p.times.forward, forward);
  add("backward", p.times.backward, backward);
  add("optimizer", p.times.optimizer, optimizer);
  add("the step", p.seconds, forward + backward + optimizer);
  const auto estimate = [&](const std::string& name, double flops) {
    table.rows.push_back({name, "", percent(flops / p.seconds / p.peak_flops), amount(flops), rate(flops, p.seconds)});
  };
  estimate("what the model needs, and MFU", p.model_flops);
  if (p.options.recompute_factor > 0)
    estimate(fmt::format("and {:g} x forward for recomputation", p.options.recompute_factor),
             p.model_flops * (1 + p.options.recompute_factor / 3));
  return fit_table(table, width);
}

std::string operations(const StepProfile& p, int width) {
  Table table =
      table_of({4, 0, 1, 5, 2, 6, 3}, {"operation", "runs", "time", "of step", "FLOP", "FLOP/s", "bytes", "B/s"});
  const auto add = [&](const std::string& name, const OperationTotal& total) {
    table.rows.push_back({name, fmt::format("{}", total.runs), time_of(total.seconds),
                          percent(total.seconds / p.seconds), amount(total.work.flops),
                          rate(total.work.flops, total.seconds), amount(total.work.bytes),
                          rate(total.work.bytes, total.seconds)});
  };
  std::vector<std::pair<std::string, OperationTotal>> sorted(p.operations.begin(), p.operations.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  OperationTotal others;
  double rest = p.seconds;
  bool transposes = false;
  for (size_t i = 0; i < sorted.size(); ++i) {
    const auto& [name, total] = sorted[i];
    rest -= total.seconds;
    i < kOperationRows ? add(name, total) : void(others += total);
    transposes |= i < kOperationRows && name.find('\'') != std::string::npos;
  }
  if (sorted.size() > kOperationRows) add(fmt::format("{} others", sorted.size() - kOperationRows), others);
  table.rows.push_back({"the rest: collectives, waiting, tape", "", time_of(rest), percent(rest / p.seconds)});
  const char* legend =
      "MatMul M x N x K multiplies a [M, K] by b [K, N]; a', b': stored transposed, as [K, M], [N, K]\n";
  return fit_table(table, width) + (transposes ? wrap(legend, width, 2) : "");
}

std::vector<std::string> module_row(const std::string& name, const ModuleProfile& module, const StepProfile& p) {
  return {name,
          module.parameters > 0 ? format_count(static_cast<double>(module.parameters)) : "",
          time_of(module.forward.seconds),
          time_of(module.backward.seconds),
          percent(module.seconds() / p.seconds),
          amount(module.flops()),
          rate(module.flops(), module.seconds())};
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

void add_top_modules(const StepProfile& p, int64_t deepest, Table& table) {
  table.rows.push_back(module_row(fmt::format("depth 0: {}", p.model.name), p.model, p));
  for (int64_t depth = 1; depth <= deepest; ++depth) {
    std::vector<Kind> kinds;
    add_kinds(p.model, depth, kinds);
    if (kinds.empty()) break;
    std::stable_sort(kinds.begin(), kinds.end(),
                     [](const Kind& a, const Kind& b) { return a.together.seconds() > b.together.seconds(); });
    for (size_t i = 0; i < kinds.size() && static_cast<int64_t>(i) < p.options.top_modules; ++i)
      table.rows.push_back(
          module_row(fmt::format("{:<9}{}{}", i == 0 ? fmt::format("depth {}:", depth) : "", kinds[i].together.name,
                                 kinds[i].count > 1 ? fmt::format(" x {}", kinds[i].count) : ""),
                     kinds[i].together, p));
  }
}

void add_every_module(const ModuleProfile& module, int64_t depth, int64_t deepest, const StepProfile& p, Table& table) {
  table.rows.push_back(module_row(fmt::format("{:{}}{}", "", 2 * depth, module.name), module, p));
  if (depth < deepest)
    for (const ModuleProfile& each : module.inside) add_every_module(each, depth + 1, deepest, p, table);
}

std::string modules(const StepProfile& p, int width) {
  const int64_t deepest = p.options.module_depth < 0 ? std::numeric_limits<int64_t>::max() : p.options.module_depth;
  const auto titled = [](const std::string& name) {
    return table_of({5, 1, 1, 0, 4, 3}, {name, "parameters", "forward", "backward", "of step", "FLOP", "FLOP/s"});
  };
  Table top = titled(p.options.top_modules == 1 ? "longest module" : "longest modules");
  add_top_modules(p, deepest, top);
  if (!p.options.detailed) return fit_table(top, width);
  Table every = titled("every module");
  add_every_module(p.model, 0, deepest, p, every);
  return fit_table(top, width) + "\n" + fit_table(every, width);
}

}  // namespace

std::string to_text(const StepProfile& profile, int width) {
  return fmt::format("{}\n{}\n{}\n{}", wrap(header(profile), width, 2), passes(profile, width),
                     operations(profile, width), modules(profile, width));
}

void ProfileWriter::on_step(const StepReport& report) {
  if (report.profile && !report.profile->options.output_file.empty())
    write_text_atomically(report.profile->options.output_file, to_text(*report.profile));
}

}  // namespace nought
