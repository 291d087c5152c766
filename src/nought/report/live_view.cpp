#include "nought/report/live_view.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include <fmt/format.h>

#include "nought/base/lines.h"
#include "nought/base/text.h"
#include "nought/report/run_facts.h"

namespace nought {

namespace {

/// At most `columns` characters of a line.
std::string cut_line(const std::string& text, int columns) {
  std::string cut;
  int used = 0;
  for (const char c : one_line(text)) {
    const bool begins = (static_cast<unsigned char>(c) & 0xc0) != 0x80;  // a character of UTF-8
    if (begins && ++used > columns) break;
    cut += c;
  }
  return cut;
}

std::string percent(double part) { return fmt::format("{:.1f}%", 100 * part); }

double mean_of_last(const StepTable& table, std::string_view column, size_t count) {
  const std::vector<double>* values = table.find(column);
  if (values == nullptr) return std::nan("");
  double sum = 0, numbers = 0;
  for (size_t i = values->size() - std::min(values->size(), count); i < values->size(); ++i)
    if (!std::isnan((*values)[i])) sum += (*values)[i], ++numbers;
  return sum / numbers;
}

/// Where the run stands: a bar, steps and the time that is left at the pace of the last steps.
std::string progress_line(const RunFolder& run, int columns) {
  const double made = run.steps.empty() ? 0 : static_cast<double>(run.steps.steps().back());
  const double all = run.number("/run/max_steps");
  std::string left = "-";
  if (const std::vector<double>* times = run.steps.find("time"); times != nullptr && run.steps.rows() > 1) {
    const size_t first = times->size() - std::min<size_t>(times->size(), 50);
    const double pace = (times->back() - (*times)[first]) / static_cast<double>(times->size() - 1 - first);
    if (run.state == RunState::running && pace > 0) left = format_duration(pace * std::max(0.0, all - made));
  }
  return bar_line(all > 0 ? std::min(1.0, made / all) : 0,
                  {{fmt::format("step {:.0f}/{:.0f}", made, all), 0}, {"ETA " + left, 1}}, columns);
}

std::string curve_line(const RunFolder& run, const char* name, const char* column, const std::string& now,
                       int columns) {
  const std::vector<double>* values = run.steps.find(column);
  if (values == nullptr) return "";
  const std::string begin = fmt::format("{:<9} {:>14}  ", name, now);
  return begin + sparkline(*values, std::max(0, columns - static_cast<int>(begin.size())));
}

/// "rank 0  8.23 MiB": measured if the run has ended, else predicted.
std::vector<std::string> memory_lines(const RunFolder& run) {
  const std::vector<Json>& measured = rows_of(run.fact("/measured/memory"));
  std::vector<std::string> lines;
  const bool known = !measured.empty();
  const std::vector<Json>& ranks = known ? measured : rows_of(run.fact("/predicted/memory"));
  for (size_t i = 0; i < ranks.size(); ++i) {
    const auto bytes = static_cast<int64_t>(number_in(ranks[i], "peak_total"));
    lines.push_back(known ? fmt::format("memory    rank {}: {} at the peak", i, format_bytes(bytes))
                    : ranks.size() == 1
                        ? fmt::format("memory    {} per rank at the peak, predicted", format_bytes(bytes))
                        : fmt::format("memory    place {}: {} at the peak, predicted", i, format_bytes(bytes)));
  }
  return lines;
}

/// Where the last steps' time went, and which rank the others wait for.
std::vector<std::string> time_lines(const RunFolder& run) {
  constexpr size_t kSteps = 20;
  std::vector<std::string> lines;
  const auto text = [&](const char* column) {
    return fmt::format("{:.3g} ms", 1e3 * mean_of_last(run.steps, column, kSteps));
  };
  if (run.steps.find("forward_seconds") != nullptr)
    lines.push_back(fmt::format("time      forward {}, backward {}, optimizer {}, communication {}",
                                text("forward_seconds"), text("backward_seconds"), text("optimizer_seconds"),
                                text("communication_seconds")));
  const Json& ranks = run.rank_seconds;
  for (const char* part : {"forward", "backward", "data"})
    if (ranks.is_object() && ranks.contains(part))
      lines.push_back(fmt::format("ranks     {}: {:.3g} to {:.3g} ms, slowest is rank {:.0f}", part,
                                  1e3 * number_in(ranks[part], "min"), 1e3 * number_in(ranks[part], "max"),
                                  number_in(ranks[part], "slowest_rank")));
  return lines;
}

std::string disk_line(const RunFolder& run) {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(run.path, error);
  return error ? "" : fmt::format("disk      {} left", format_bytes(static_cast<int64_t>(space.available)));
}

std::vector<std::string> event_lines(const RunFolder& run) {
  std::vector<std::string> lines;
  for (const RunEvent& event : run.events)
    lines.push_back(fmt::format("step {}: {}: {}", event.step, event.kind, event.text));
  for (const std::string& problem : run.problems) lines.push_back(problem);
  if (!run.samples.empty())
    lines.push_back(fmt::format("sample of step {}: {} -> {}", run.samples.back().step, run.samples.back().prompt,
                                run.samples.back().text));
  return lines;
}

}  // namespace

std::string sparkline(std::span<const double> values, int columns) {
  constexpr std::array<const char*, 8> kHeights{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const auto width = static_cast<size_t>(std::max(0, columns));
  const size_t length = width == 0 ? 1 : std::max<size_t>(1, (values.size() + width - 1) / width);
  std::vector<double> means;
  for (size_t end = values.size(); end > 0 && means.size() < width; end -= std::min(end, length)) {
    double sum = 0, numbers = 0;
    for (size_t i = end - std::min(end, length); i < end; ++i)
      if (std::isfinite(values[i])) sum += values[i], ++numbers;
    means.push_back(numbers > 0 ? sum / numbers : std::nan(""));
  }
  double least = INFINITY, most = -INFINITY;
  for (const double mean : means)
    if (!std::isnan(mean)) least = std::min(least, mean), most = std::max(most, mean);
  std::string line;
  for (auto mean = means.rbegin(); mean != means.rend(); ++mean) {
    const double part = most > least ? (*mean - least) / (most - least) : 0;
    line += std::isnan(*mean) ? " " : kHeights[static_cast<size_t>(std::lround(7 * part))];
  }
  return line;
}

std::string live_view(const RunFolder& run, int columns, int rows) {
  std::vector<std::string> lines{fmt::format("{}  {}  {}", run.name, name_of(run.state), run.owner), describe_run(run),
                                 progress_line(run, columns)};
  const auto number = [&](const char* column) { return run.steps.last(column); };
  lines.push_back(curve_line(run, "loss", "loss", fmt::format("{:.4f}", number("loss")), columns));
  lines.push_back(curve_line(run, "grad norm", "grad_norm", fmt::format("{:.3f}", number("grad_norm")), columns));
  lines.push_back(
      curve_line(run, "speed", "tokens_per_second", format_token_rate(number("tokens_per_second")), columns));
  lines.push_back(curve_line(run, "MFU", "mfu", percent(number("mfu")), columns));
  if (!run.validations.empty())
    lines.push_back(fmt::format("validated {:>14.4f}  at step {}", run.validations.last("eval_loss"),
                                run.validations.steps().back()));
  for (const std::string& line : time_lines(run)) lines.push_back(line);
  lines.push_back(disk_line(run));
  std::vector<std::string> memory = memory_lines(run), events = event_lines(run);
  lines.erase(std::remove(lines.begin(), lines.end(), ""), lines.end());
  // The last events have a third of what is left, memory of the ranks the rest.
  const auto room = static_cast<size_t>(std::max(0, rows - static_cast<int>(lines.size())));
  const size_t told = std::min(events.size(), std::max(room / 3, room - std::min(room, memory.size())));
  memory.resize(std::min(memory.size(), room - told));
  lines.insert(lines.end(), memory.begin(), memory.end());
  lines.insert(lines.end(), events.end() - static_cast<std::ptrdiff_t>(told), events.end());
  lines.resize(std::min(lines.size(), static_cast<size_t>(std::max(0, rows))));
  std::string text;
  for (const std::string& line : lines) text += cut_line(line, columns) + "\n";
  return text;
}

}  // namespace nought
