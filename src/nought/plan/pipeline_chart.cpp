#include "nought/plan/pipeline_chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "nought/base/error.h"

namespace nought {

namespace {

constexpr double kChartWidth = 960, kTimeLeft = 64, kTimeRight = 936;
constexpr double kFirstPanel = 44, kCaption = 26, kRow = 34, kBox = 26, kPanelGap = 14;
constexpr double kTicks = 30, kLegend = 34;  // heights of what is below the panels

/// How a kind of pass looks. Told apart by people who see no red or no green too (Okabe and Ito's palette).
struct PassStyle {
  Action action;
  std::string_view name;
  std::array<int, 3> colour;
  std::string_view ink;
};
constexpr std::array kPassStyles{
    PassStyle{Action::forward, "forward", {0x00, 0x72, 0xb2}, "#ffffff"},
    PassStyle{Action::backward, "backward", {0xe6, 0x9f, 0x00}, "#000000"},
    PassStyle{Action::weight_gradients, "weight gradients", {0x00, 0x9e, 0x73}, "#ffffff"}};
constexpr std::string_view kMessageColour = "#777777";

/// A distance between ticks that is 1, 2 or 5 times a power of ten and gives four to ten of them.
double tick_step(double end) {
  const double power = std::pow(10, std::floor(std::log10(end / 4)));
  for (const double factor : {5, 2})
    if (power * factor * 4 <= end) return power * factor;
  return power;
}

/// "250 ms", in the unit in which the largest time is at least 1.
std::string time_text(double seconds, double largest) {
  if (largest >= 1) return fmt::format("{:.3g} s", seconds);
  if (largest >= 1e-3) return fmt::format("{:.3g} ms", seconds * 1e3);
  return fmt::format("{:.3g} us", seconds * 1e6);
}

class TimelineChart {
 public:
  explicit TimelineChart(std::span<const TimelinePanel> panels) : panels_(panels) {
    for (const TimelinePanel& panel : panels_) {
      end_ = std::max(end_, panel.timeline.end());
      chunks_ = std::max(chunks_, panel.timeline.chunks);
    }
    require(end_ > 0, "a timeline in which no pass takes time cannot be drawn");
  }

  Drawing draw(const std::string& title) {
    std::string svg = svg_text(kTimeLeft, 28, "start", 17, title);
    double y = kFirstPanel;
    for (const TimelinePanel& panel : panels_) {
      svg += draw_panel(panel, y);
      y += kCaption + kRow * static_cast<double>(panel.timeline.ranks.size()) + kPanelGap;
    }
    y -= kPanelGap;
    return {kChartWidth, y + kTicks + kLegend, svg + ticks(y) + legend(y + kTicks)};
  }

 private:
  double x_of(double time) const { return kTimeLeft + time / end_ * (kTimeRight - kTimeLeft); }

  static std::string idle(const PipelineTimeline& timeline) {
    const double end = timeline.end();
    return fmt::format("{}, ranks are idle for {:.1f}% of it", time_text(end, end), 100 * timeline.idle_share());
  }

  std::string draw_panel(const TimelinePanel& panel, double y) {
    std::string svg = svg_text(kTimeLeft, y + 16, "start", 13, panel.caption) +
                      svg_text(kTimeRight, y + 16, "end", 13, idle(panel.timeline));
    y += kCaption;
    const double width = x_of(panel.timeline.end()) - kTimeLeft;
    for (size_t rank = 0; rank < panel.timeline.ranks.size(); ++rank, y += kRow) {
      svg += svg_text(kTimeLeft - 8, y + 18, "end", 12, fmt::format("rank {}", rank));
      svg += svg_rectangle(kTimeLeft, y, width, kBox, "#eeeeee");
      for (const TimedInstruction& each : panel.timeline.ranks[rank])
        if (each.end > each.begin) svg += is_pass(each.instruction.action) ? box(each, y) : message(each, y);
    }
    return svg;
  }

  std::string message(const TimedInstruction& sent, double y) {
    messages_ = true;
    return svg_rectangle(x_of(sent.begin), y + kBox + 2, x_of(sent.end) - x_of(sent.begin), 3, kMessageColour);
  }

  std::string box(const TimedInstruction& pass, double y) {
    const auto kind = static_cast<size_t>(pass.instruction.action);
    drawn_[kind] = true;
    const double x = x_of(pass.begin), width = x_of(pass.end) - x;
    const double gap = width > 3 ? 0.7 : 0;  // between boxes, where they are wide enough to show it
    const int64_t chunk = pass.instruction.chunk;
    std::string svg = svg_rectangle(x, y, width - gap, kBox, colour(kPassStyles[kind], chunk));
    const std::string number = std::to_string(pass.instruction.micro_batch);
    if (width >= 7 * static_cast<double>(number.size()) + 2)
      svg += svg_text(x + width / 2, y + 17, "middle", 11, number, chunk == 0 ? kPassStyles[kind].ink : "#000000");
    return svg;
  }

  /// Mixed with white, which is 60% of the last chunk's colour.
  std::string colour(const PassStyle& style, int64_t chunk) const {
    const auto last = static_cast<double>(std::max<int64_t>(1, chunks_ - 1));
    const double white = 0.6 * static_cast<double>(chunk) / last;
    std::array<int, 3> mixed{};
    for (size_t i = 0; i < 3; ++i)
      mixed[i] = style.colour[i] + static_cast<int>(white * static_cast<double>(255 - style.colour[i]));
    return fmt::format("#{:02x}{:02x}{:02x}", mixed[0], mixed[1], mixed[2]);
  }

  std::string ticks(double y) const {
    std::string svg = svg_line(kTimeLeft, y, kTimeRight, y, R"(stroke="#bbbbbb")");
    const double step = tick_step(end_);
    for (int64_t i = 0; static_cast<double>(i) * step <= end_ * (1 + 1e-9); ++i) {
      const double time = static_cast<double>(i) * step;
      svg += svg_line(x_of(time), y, x_of(time), y + 5, R"(stroke="#bbbbbb")") +
             svg_text(x_of(time), y + 19, "middle", 11, time_text(time, end_));
    }
    return svg;
  }

  /// A square for each chunk, then the name.
  std::string legend(double y) const {
    std::string svg;
    double x = kTimeLeft;
    for (size_t kind = 0; kind < kPassStyles.size(); ++kind) {
      if (!drawn_[kind]) continue;
      for (int64_t chunk = 0; chunk < chunks_; ++chunk, x += 15)
        svg += svg_rectangle(x, y + 6, 13, 13, colour(kPassStyles[kind], chunk));
      svg += svg_text(x + 4, y + 17, "start", 12, std::string(kPassStyles[kind].name));
      x += 26 + 7 * static_cast<double>(kPassStyles[kind].name.size());
    }
    if (messages_)
      svg += svg_rectangle(x, y + 11, 13, 3, kMessageColour) + svg_text(x + 19, y + 17, "start", 12, "message"),
          x += 90;
    svg += svg_rectangle(x, y + 6, 13, 13, "#eeeeee") + svg_text(x + 19, y + 17, "start", 12, "idle");
    const std::string numbers =
        chunks_ > 1 ? "numbers: micro-batches; pale: a rank's later stages" : "numbers: micro-batches";
    return svg + svg_text(kTimeRight, y + 17, "end", 12, numbers, "#666666");
  }

  std::span<const TimelinePanel> panels_;
  double end_ = 0;
  int64_t chunks_ = 1;
  std::array<bool, kPassStyles.size()> drawn_{};  // the kinds of passes, for the legend
  bool messages_ = false;
};

}  // namespace

Drawing draw_timelines(std::span<const TimelinePanel> panels, const std::string& title) {
  return TimelineChart(panels).draw(title);
}

}  // namespace nought
