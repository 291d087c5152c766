#include "nought/report/drawings.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <set>

#include <fmt/format.h>

#include "nought/base/text.h"
#include "nought/plan/chart.h"
#include "nought/plan/svg.h"
#include "nought/report/curves.h"
#include "nought/report/html.h"
#include "nought/report/run_facts.h"

namespace nought {

namespace {

/// The line of each run beside its colour, so that curves are told apart without colour.
constexpr std::array<std::string_view, 8> kDashes{"",     "7 4",     "2 3", "10 3 2 3",
                                                  "14 5", "4 2 1 2", "1 4", "9 3 9 3 2 3"};
constexpr std::string_view kGrid = R"(stroke="#dddddd")";

/// The least round number that divides a span into at most `most` parts.
double round_step(double span, int most) {
  const double power = std::pow(10, std::floor(std::log10(span / most)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (span / (power * factor) <= most) return power * factor;
  return 10 * power;
}

class CurveDrawing {
 public:
  CurveDrawing(const CurveChart& chart, std::span<const RunFolder> runs) : chart_(chart), runs_(runs) { measure(); }

  Drawing draw() {
    std::string& out = drawing_.elements;
    out += svg_text(kLeft, 20, "start", 15, escape_html(chart_.title));
    legend();
    grid();
    for (const Curve& curve : chart_.curves) out += line_of(curve);
    out += svg_text((kLeft + kRight) / 2, kHeight - 8, "middle", 11, "step");
    return drawing_;
  }

 private:
  static constexpr double kWidth = 720, kHeight = 340, kLeft = 70, kRight = 708, kTop = 52, kBase = 300;

  void measure() {
    least_ = first_ = std::numeric_limits<double>::infinity(), most_ = last_ = -least_;
    for (const Curve& curve : chart_.curves)
      for (size_t i = 0; i < curve.steps.size(); ++i) {
        const auto step = static_cast<double>(curve.steps[i]);
        first_ = std::min(first_, step), last_ = std::max(last_, step);
        if (!std::isfinite(curve.values[i])) continue;
        least_ = std::min(least_, curve.values[i]), most_ = std::max(most_, curve.values[i]);
      }
    if (least_ > most_) least_ = 0, most_ = 1;
    if (first_ > last_) first_ = 0, last_ = 1;
    if (first_ == last_) last_ += 1;
    const double room = most_ > least_ ? 0.05 * (most_ - least_) : std::max(std::abs(most_), 1.0) / 10;
    least_ -= room, most_ += room;
  }

  double x_of(double step) const { return kLeft + (step - first_) / (last_ - first_) * (kRight - kLeft); }
  double y_of(double value) const { return kBase - (value - least_) / (most_ - least_) * (kBase - kTop); }

  void grid() {
    const double high = round_step(most_ - least_, 6), wide = round_step(last_ - first_, 8);
    for (double value = std::ceil(least_ / high) * high; value <= most_; value += high) {
      const double shown = std::abs(value) < high / 1e6 ? 0 : value;
      drawing_.elements += svg_line(kLeft, y_of(value), kRight, y_of(value), kGrid);
      drawing_.elements +=
          svg_text(kLeft - 6, y_of(value) + 4, "end", 11,
                   chart_.unit == "%" ? fmt::format("{:.4g}%", 100 * shown) : fmt::format("{:.5g}", shown));
    }
    for (double step = std::ceil(first_ / wide) * wide; step <= last_; step += wide) {
      drawing_.elements += svg_line(x_of(step), kTop, x_of(step), kBase, kGrid);
      drawing_.elements += svg_text(x_of(step), kBase + 16, "middle", 11, fmt::format("{:.7g}", step));
    }
  }

  void legend() {
    if (runs_.size() < 2) return;
    double x = kLeft;
    for (size_t i = 0; i < runs_.size(); ++i) {
      drawing_.elements += svg_line(x, 38, x + 26, 38, look(i, 2, 1));
      drawing_.elements += svg_text(x + 32, 42, "start", 11, escape_html(runs_[i].name));
      x += 48 + 6.5 * static_cast<double>(runs_[i].name.size());
    }
  }

  static std::string look(size_t run, double width, double opacity) {
    const std::string_view dash = kDashes[run % kDashes.size()];
    return fmt::format(R"(fill="none" stroke="{}" stroke-width="{}" stroke-opacity="{}"{})",
                       kRunColours[run % kRunColours.size()], width, opacity,
                       dash.empty() ? "" : fmt::format(R"( stroke-dasharray="{}")", dash));
  }

  /// Where there is a smoothed curve, the raw one is pale behind it; so are steps that were made again.
  std::string line_of(const Curve& curve) const {
    std::string path;
    bool pen = false;
    for (size_t i = 0; i < curve.steps.size(); ++i) {
      const bool there = std::isfinite(curve.values[i]);
      if (there)
        path += fmt::format("{}{:.1f} {:.1f}", pen ? "L" : "M", x_of(static_cast<double>(curve.steps[i])),
                            y_of(curve.values[i]));
      pen = there;
    }
    if (path.empty()) return "";
    const bool has_smooth = std::any_of(chart_.curves.begin(), chart_.curves.end(), [&](const Curve& each) {
      return each.kind == "smooth" && each.run == curve.run;
    });
    const bool pale = curve.kind == "discarded" || (curve.kind == "raw" && has_smooth);
    const double width = curve.kind == "validation" ? 2.5 : curve.kind == "smooth" ? 2 : 1.3;
    return fmt::format("<path d=\"{}\" {}/>\n", path, look(curve.run, width, pale ? 0.35 : 1));
  }

  const CurveChart& chart_;
  std::span<const RunFolder> runs_;
  double least_ = 0, most_ = 0, first_ = 0, last_ = 0;
  Drawing drawing_{kWidth, kHeight};
};

/// A bar for what was predicted and for each rank, as long as the peak, by category.
Drawing draw_run_memory(const RunFolder& run) {
  constexpr double kLeft = 150, kBar = 460, kRow = 24, kTop = 62;
  const std::vector<MemoryRow> rows = memory_rows(run);
  double whole = 0;
  for (const MemoryRow& row : rows) whole = std::max(whole, number_in(*row.peaks, "peak_total"));
  if (whole <= 0) return {};
  Drawing drawing{720, kTop + kRow * static_cast<double>(rows.size()) + 10};
  std::string& out = drawing.elements;
  out += svg_text(12, 20, "start", 15, "memory of the ranks: " + escape_html(run.name));
  double legend = 12;
  for (size_t c = 0; c < kNumCategories; ++c) {
    const std::string name(name_of(static_cast<Category>(c)));
    const bool is_shown = std::any_of(rows.begin(), rows.end(), [&](const MemoryRow& row) {
      return row.peaks->is_object() && number_in(row.peaks->value("at_peak", Json::object()), name) > 0;
    });
    if (!is_shown) continue;
    out += svg_rectangle(legend, 34, 10, 10, kCategoryColours[c]) + svg_text(legend + 14, 43, "start", 11, name);
    legend += 30 + 6.5 * static_cast<double>(name.size());
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    const double y = kTop + kRow * static_cast<double>(i);
    const Json at_peak = rows[i].peaks->is_object() ? rows[i].peaks->value("at_peak", Json::object()) : Json::object();
    out += svg_text(kLeft - 8, y + 13, "end", 11, rows[i].name);
    double x = kLeft;
    for (size_t c = 0; c < kNumCategories; ++c) {
      const double width = number_in(at_peak, std::string(name_of(static_cast<Category>(c)))) / whole * kBar;
      if (width > 0) out += svg_rectangle(x, y, width, kRow - 6, kCategoryColours[c]);
      x += std::max(width, 0.0);
    }
    const auto bytes = static_cast<int64_t>(number_in(*rows[i].peaks, "peak_total"));
    out += svg_text(x + 6, y + 13, "start", 11, format_bytes(bytes));
  }
  return drawing;
}

/// Names of columns and runs as names of files, each once.
class FileNames {
 public:
  std::string name(const std::string& wish) {
    constexpr size_t kLongest = 80;
    std::string name;
    for (const char c : wish.substr(0, kLongest))
      name += std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' ? c : '_';
    std::string free = name;
    for (int n = 2; !taken_.insert(free).second; ++n) free = fmt::format("{}_{}", name, n);
    return free + ".svg";
  }

 private:
  std::set<std::string> taken_;
};

}  // namespace

std::vector<DrawnChart> draw_report(std::span<const RunFolder> runs) {
  std::vector<DrawnChart> charts;
  FileNames names;
  for (const CurveChart& chart : charts_of(runs))
    charts.push_back({names.name(chart.name), to_svg({CurveDrawing(chart, runs).draw()})});
  for (const RunFolder& run : runs)
    if (const Drawing memory = draw_run_memory(run); memory.height > 0)
      charts.push_back({names.name(runs.size() > 1 ? "memory_" + run.name : "memory"), to_svg({memory})});
  return charts;
}

}  // namespace nought
