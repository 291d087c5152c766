// The sections of memory, traffic and time: what was predicted beside what was measured.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "nought/base/text.h"
#include "nought/plan/chart.h"
#include "nought/report/html.h"
#include "nought/report/run_facts.h"
#include "nought/report/sections.h"

namespace nought {

namespace {

std::string bytes_or_dash(double bytes) { return bytes > 0 ? format_bytes(static_cast<int64_t>(bytes)) : "-"; }

/// A row of parts as long as their share of `whole`. Each has its name as a tooltip.
std::string stacked_bar(const std::vector<std::pair<std::string, double>>& parts, double whole) {
  constexpr double kWidth = 360, kHeight = 14;
  std::string bar =
      fmt::format("<svg width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" aria-hidden=\"true\">", kWidth, kHeight);
  double x = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const double width = whole > 0 ? parts[i].second / whole * kWidth : 0;
    bar += fmt::format(R"(<rect x="{:.1f}" y="0" width="{:.1f}" height="{}" fill="{}"><title>{}</title></rect>)", x,
                       width, kHeight, kCategoryColours[i % kCategoryColours.size()], escape_html(parts[i].first));
    x += width;
  }
  return bar + "</svg>";
}

HtmlTable memory_table_of(const RunFolder& run, bool several) {
  HtmlTable table{.caption = several ? run.name : "", .rows = {{"", "at the peak"}}};
  const std::vector<MemoryRow> rows = memory_rows(run);
  double whole = 0;
  for (const MemoryRow& row : rows) whole = std::max(whole, number_in(*row.peaks, "peak_total"));
  for (size_t c = 0; c < kNumCategories; ++c) table.rows[0].emplace_back(name_of(static_cast<Category>(c)));
  table.rows[0].insert(table.rows[0].end(), {"all at once", "on the host", "in files"});
  for (const MemoryRow& row : rows) {
    static const Json nothing = Json::object();
    const Json& at_peak = row.peaks->is_object() && row.peaks->contains("at_peak") ? (*row.peaks)["at_peak"] : nothing;
    std::vector<std::pair<std::string, double>> parts;
    std::vector<std::string> cells;
    for (size_t c = 0; c < kNumCategories; ++c) {
      const std::string name(name_of(static_cast<Category>(c)));
      parts.emplace_back(name, number_in(at_peak, name));
      cells.push_back(bytes_or_dash(parts.back().second));
    }
    cells.push_back(bytes_or_dash(number_in(*row.peaks, "peak_total")));
    cells.push_back(bytes_or_dash(number_in(*row.peaks, "host_peak")));
    cells.push_back(bytes_or_dash(number_in(*row.peaks, "file_peak")));
    table.rows.push_back({row.name, stacked_bar(parts, whole)});
    table.rows.back().insert(table.rows.back().end(), cells.begin(), cells.end());
  }
  return table;
}

std::string predicted_traffic(const RunFolder& run, const std::string& name) {
  HtmlTable table{.caption = name + "what a rank sends in a step, by the closed formulas",
                  .rows = {{"axes", "collective", "calls", "bytes"}},
                  .numbers = 2};
  double bytes = 0;
  for (const Json& row : rows_of(run.fact("/predicted/traffic"))) {
    bytes += number_in(row, "bytes");
    table.rows.push_back({escape_html(text_in(row, "axes")), escape_html(text_in(row, "collective")),
                          fmt::format("{}", number_in(row, "calls")), bytes_or_dash(number_in(row, "bytes"))});
  }
  if (table.rows.size() < 2) return "";
  const std::vector<double>* sent = run.steps.find("bytes_sent");
  table.rows.push_back({"all, predicted", "", "", bytes_or_dash(bytes)});
  table.rows.push_back(
      {"all, counted (median of the steps)", "", "", sent == nullptr ? "-" : bytes_or_dash(median_of(*sent))});
  return to_html(table);
}

std::string measured_collectives(const RunFolder& run, const std::string& name) {
  HtmlTable table{.caption = name + "collectives of rank 0 in the whole run",
                  .rows = {{"collective", "bytes of the tensor", "calls", "seconds", "mean", "rate"}}};
  for (const Json& row : rows_of(run.fact("/measured/collectives"))) {
    const double calls = number_in(row, "calls"), seconds = number_in(row, "seconds"),
                 mean = seconds / std::max(calls, 1.0);
    table.rows.push_back({escape_html(text_in(row, "name")), bytes_or_dash(number_in(row, "bytes")),
                          fmt::format("{}", calls), fmt::format("{:.3f}", seconds),
                          fmt::format("{:.3f} ms", 1e3 * mean),
                          mean > 0 ? bytes_or_dash(number_in(row, "bytes") / mean) + "/s" : "-"});
  }
  return to_html(table);
}

}  // namespace

std::string memory_section(std::span<const RunFolder> runs) {
  std::string html;
  for (const RunFolder& run : runs) {
    html += to_html(memory_table_of(run, runs.size() > 1));
    if (const std::string assumed = run.text("/predicted/memory_assumes"); !assumed.empty())
      html += fmt::format("<p>{}</p>\n", escape_html(assumed));
  }
  return html.empty() ? "" : html_heading("memory", "Memory of the ranks") + html;
}

std::string traffic_section(std::span<const RunFolder> runs) {
  std::string html;
  for (const RunFolder& run : runs) {
    const std::string name = runs.size() > 1 ? run.name + ": " : "";
    html += predicted_traffic(run, name) + measured_collectives(run, name);
  }
  return html.empty() ? "" : html_heading("traffic", "Traffic") + html;
}

std::string times_section(std::span<const RunFolder> runs) {
  HtmlTable table{.rows = {{"", "median step"}}};
  const std::vector<std::pair<const char*, const char*>> parts{
      {"forward_seconds", "forward"}, {"backward_seconds", "backward"}, {"optimizer_seconds", "optimizer"}};
  for (const auto& part : parts) table.rows[0].emplace_back(part.second);
  table.rows[0].insert(table.rows[0].end(), {"rest", "whole step", "communication", "of it hidden"});
  for (const RunFolder& run : runs) {
    const auto median = [&run](const char* column) {
      const std::vector<double>* values = run.steps.find(column);
      return values == nullptr ? std::nan("") : median_of(*values);
    };
    const double whole = median("seconds");
    if (std::isnan(whole) || std::isnan(median("forward_seconds"))) continue;
    const auto text = [](double seconds) { return fmt::format("{:.3g} ms", 1e3 * seconds); };
    std::vector<std::pair<std::string, double>> bar;
    double rest = whole;
    table.rows.push_back({escape_html(run.name), ""});
    for (const auto& part : parts) {
      bar.emplace_back(part.second, median(part.first));
      rest -= bar.back().second;
      table.rows.back().push_back(text(bar.back().second));
    }
    table.rows.back()[1] = stacked_bar(bar, whole);
    table.rows.back().insert(table.rows.back().end(),
                             {text(std::max(rest, 0.0)), text(whole), text(median("communication_seconds")),
                              fmt::format("{:.0f}%", 100 * median("communication_hidden"))});
  }
  const std::string html = to_html(table);
  return html.empty() ? "" : html_heading("times", "Where a step's time goes") + html;
}

}  // namespace nought
