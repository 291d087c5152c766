#include "nought/bench/report.h"

#include <algorithm>

#include <fmt/format.h>

#include "nought/base/json.h"
#include "nought/base/text.h"

namespace nought {

double Figure::fraction() const {
  Samples fractions;
  for (size_t i = 0; i < limits.values.size(); ++i)
    fractions.values.push_back(reached(seconds.values[i]) / limits.values[i]);
  return fractions.median();
}

namespace {

/// "434 GFLOP/s", "12.1 GiB/s", "437 tokens/s"
std::string rate_text(double rate, const std::string& unit) {
  if (unit == "B") return format_bytes(static_cast<int64_t>(rate)) + "/s";
  return unit == "tokens" ? format_token_rate(rate) : format_rate(rate, unit + "/s");
}

/// "1.23 ms"
std::string time_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.3g} us", seconds * 1e6);
  return seconds < 1 ? fmt::format("{:.3g} ms", seconds * 1e3) : fmt::format("{:.3g} s", seconds);
}

std::string text_of(const Fact& fact) {
  if (fact.unit == "%") return fmt::format("{:.1f}%", 100 * fact.value);
  if (fact.unit == "B") return format_bytes(static_cast<int64_t>(fact.value));
  return fact.unit == "s" ? time_text(fact.value) : fmt::format("{:g}", fact.value);
}

/// The names of all facts, each once.
std::vector<std::string> fact_names(const std::vector<Figure>& figures) {
  std::vector<std::string> names;
  for (const Figure& figure : figures)
    for (const Fact& fact : figure.facts)
      if (std::find(names.begin(), names.end(), fact.name) == names.end()) names.push_back(fact.name);
  return names;
}

}  // namespace

std::string to_table(const std::vector<Figure>& figures) {
  std::vector<std::vector<std::string>> rows{{"", "median", "min", "max", "rate", "limit", "reached"}};
  const std::vector<std::string> names = fact_names(figures);
  rows[0].insert(rows[0].end(), names.begin(), names.end());
  for (const Figure& f : figures) {
    const bool limited = !f.limit_name.empty();
    const std::string limit_unit = f.limited_work > 0 ? f.limited_unit : f.unit;
    rows.push_back({f.name, time_text(f.seconds.median()), time_text(f.seconds.min()), time_text(f.seconds.max()),
                    f.unit.empty() ? "" : rate_text(f.rate(), f.unit),
                    limited ? fmt::format("{} {}", f.limit_name, rate_text(f.limits.median(), limit_unit)) : "",
                    limited ? fmt::format("{:.0f}%", 100 * f.fraction()) : ""});
    for (const std::string& name : names) {
      const auto fact =
          std::find_if(f.facts.begin(), f.facts.end(), [&](const Fact& each) { return each.name == name; });
      rows.back().push_back(fact == f.facts.end() ? "" : text_of(*fact));
    }
  }
  std::vector<size_t> widths(rows[0].size(), 0);
  for (const auto& row : rows)
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  std::string text;
  for (const auto& row : rows) {
    std::string line = fmt::format("{:<{}}", row[0], widths[0]);
    for (size_t c = 1; c < row.size(); ++c) line += fmt::format("  {:>{}}", row[c], widths[c]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

OrderedJson to_json(const std::vector<Figure>& figures) {
  OrderedJson list = OrderedJson::array();
  for (const Figure& f : figures) {
    OrderedJson entry{{"name", f.name},
                      {"unit", f.unit},
                      {"work", f.work},
                      {"seconds", {{"median", f.seconds.median()}, {"min", f.seconds.min()}, {"max", f.seconds.max()}}},
                      {"rate", f.rate()}};
    if (!f.limit_name.empty())
      entry["limit"] = {{"name", f.limit_name}, {"rate", f.limits.median()}, {"fraction", f.fraction()}};
    for (const Fact& fact : f.facts) entry["facts"][fact.name] = fact.value;
    list.push_back(std::move(entry));
  }
  return list;
}

OrderedJson bench_report(int ranks, int threads_per_rank, const std::vector<Figure>& figures) {
  return {{"format", kBenchReportFormat.str()},
          {"ranks", ranks},
          {"threads_per_rank", threads_per_rank},
          {"figures", to_json(figures)}};
}

}  // namespace nought
