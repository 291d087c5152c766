#include "nought/plan/pipeline_chart.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "nought/base/error.h"
#include "nought/plan/svg.h"

namespace nought {

namespace {

constexpr double kChartWidth = 960, kTimeLeft = 70, kTimeRight = 940, kFirstRow = 70, kRow = 34, kBox = 24;

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

class TimelineChart {
 public:
  explicit TimelineChart(const PipelineTimeline& timeline) : timeline_(timeline), end_(timeline.end()) {
    require(end_ > 0, "a timeline in which no pass takes time cannot be drawn");
  }

  std::string draw(const std::string& title) const {
    std::string svg = svg_begin(kChartWidth, bottom() + 34);
    svg += svg_text(kTimeLeft, 26, "start", 17, title) + svg_text(kTimeLeft, 46, "start", 12, idle());
    for (size_t rank = 0; rank < timeline_.ranks.size(); ++rank) svg += row(rank);
    return svg + legend() + "</svg>\n";
  }

 private:
  double x_of(double time) const { return kTimeLeft + time / end_ * (kTimeRight - kTimeLeft); }
  double bottom() const { return kFirstRow + kRow * static_cast<double>(timeline_.ranks.size()); }

  std::string idle() const {
    double busy = 0;
    for (size_t rank = 0; rank < timeline_.ranks.size(); ++rank) busy += timeline_.busy(rank);
    return fmt::format("ranks are idle for {:.1f}% of the time",
                       100 * (1 - busy / end_ / static_cast<double>(timeline_.ranks.size())));
  }

  std::string row(size_t rank) const {
    const double y = kFirstRow + kRow * static_cast<double>(rank);
    std::string svg = svg_text(kTimeLeft - 8, y + 16, "end", 12, fmt::format("rank {}", rank));
    svg += svg_rectangle(kTimeLeft, y, kTimeRight - kTimeLeft, kBox, "#eeeeee");
    for (const TimedInstruction& each : timeline_.ranks[rank]) {
      if (each.end <= each.begin) continue;
      svg += is_pass(each.instruction.action)
                 ? box(each, y)
                 : svg_rectangle(x_of(each.begin), y + kBox + 2, x_of(each.end) - x_of(each.begin), 3, "#999999");
    }
    return svg;
  }

  std::string box(const TimedInstruction& pass, double y) const {
    const double x = x_of(pass.begin), width = x_of(pass.end) - x;
    const PassStyle& style = kPassStyles[static_cast<size_t>(pass.instruction.action)];
    const double gap = width > 3 ? 0.5 : 0;  // between boxes, where they are wide enough to show it
    std::string svg = svg_rectangle(x, y, width - gap, kBox, colour(style, pass.instruction.chunk));
    const std::string number = std::to_string(pass.instruction.micro_batch);
    if (width >= 7 * static_cast<double>(number.size()) + 2)
      svg += svg_text(x + width / 2, y + 16, "middle", 11, number, pass.instruction.chunk == 0 ? style.ink : "#000000");
    return svg;
  }

  /// Mixed with white, which is 60% of the last chunk's colour.
  std::string colour(const PassStyle& style, int64_t chunk) const {
    const auto last = static_cast<double>(std::max<int64_t>(1, timeline_.chunks - 1));
    const double white = 0.6 * static_cast<double>(chunk) / last;
    std::array<int, 3> mixed{};
    for (size_t i = 0; i < 3; ++i)
      mixed[i] = style.colour[i] + static_cast<int>(white * static_cast<double>(255 - style.colour[i]));
    return fmt::format("#{:02x}{:02x}{:02x}", mixed[0], mixed[1], mixed[2]);
  }

  std::string legend() const {
    std::string svg;
    double x = kTimeLeft;
    for (const PassStyle& style : kPassStyles) {
      const auto drawn = [&](const TimedInstruction& each) { return each.instruction.action == style.action; };
      const auto& first = timeline_.ranks.front();
      if (std::none_of(first.begin(), first.end(), drawn)) continue;
      svg += svg_rectangle(x, bottom() + 8, 13, 13, colour(style, 0)) +
             svg_text(x + 19, bottom() + 19, "start", 12, std::string(style.name));
      x += 140;
    }
    return svg;
  }

  const PipelineTimeline& timeline_;
  double end_;
};

}  // namespace

std::string to_svg(const PipelineTimeline& timeline, const std::string& title) {
  return TimelineChart(timeline).draw(title);
}

}  // namespace nought
