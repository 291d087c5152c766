#include "nought/plan/chart.h"

#include <algorithm>
#include <cmath>

#include "nought/base/text.h"

namespace nought {

namespace {

constexpr double kWidth = 760, kHeight = 440;
constexpr double kLeft = 90, kRight = 590, kTop = 70, kBottom = 380;  // of the bars' area

/// A distance between grid lines that is a power of two and gives four to eight of them.
double grid_step(double top) { return std::exp2(std::ceil(std::log2(top / 8))); }

/// "stages 1, 6": those that a rank of the pipeline holds.
std::string held_stages(const Pipeline& pipeline, int64_t rank) {
  std::string text = pipeline.chunks > 1 ? "stages" : "stage";
  for (int64_t chunk = 0; chunk < pipeline.chunks; ++chunk) {
    const int64_t along = pipeline.v_shaped() && chunk % 2 == 1 ? pipeline.ranks - 1 - rank : rank;
    text += fmt::format("{} {}", chunk == 0 ? "" : ",", chunk * pipeline.ranks + along);
  }
  return text;
}

class Chart {
 public:
  Chart(const PlanReport& report, std::span<const Prediction> places)
      : report_(report),
        by_place_(!places.empty()),
        shown_(by_place_ ? places : std::span<const Prediction>(report.predictions)),
        top_(static_cast<double>(report.budgets.device)) {
    for (const Prediction& each : shown_) top_ = std::max(top_, static_cast<double>(each.memory.peak_total));
    top_ = std::max(top_, 1.0);
  }

  Drawing draw() const {
    std::string svg = title() + grid();
    for (size_t i = 0; i < shown_.size(); ++i) svg += bar(i);
    return {kWidth, kHeight, svg + budget() + legend()};
  }

 private:
  double height_of(double bytes) const { return bytes / top_ * (kBottom - kTop); }
  double y_of(double bytes) const { return kBottom - height_of(bytes); }

  std::string title() const {
    const Prediction& first = shown_.front();
    const std::string recompute = first.layout.recompute.str();
    const std::string stage = by_place_ ? fmt::format(", ZeRO stage {}", first.layout.zero_stage) : "";
    return svg_text(kLeft, 28, "start", 17,
                    by_place_ ? "Peak memory of the pipeline's ranks" : "Peak memory per rank, by ZeRO stage") +
           svg_text(kLeft, 48, "start", 12,
                    fmt::format("{} with {} parameters in {}, {} ranks, micro-batch {} of {} tokens{}{}",
                                report_.config.family, format_count(static_cast<double>(first.parameters)),
                                name_of(first.layout.sharding.dtype), first.layout.ranks, first.layout.micro_batch,
                                first.layout.seq_length, recompute.empty() ? "" : ", " + recompute, stage));
  }

  std::string grid() const {
    std::string svg;
    for (double bytes = 0; bytes <= top_; bytes += grid_step(top_)) {
      svg += svg_line(kLeft, y_of(bytes), kRight, y_of(bytes), R"(stroke="#dddddd")");
      svg += svg_text(kLeft - 8, y_of(bytes) + 4, "end", 11, format_bytes(static_cast<int64_t>(bytes)));
    }
    return svg;
  }

  std::string bar(size_t index) const {
    const Prediction& prediction = shown_[index];
    const double slot = (kRight - kLeft) / static_cast<double>(shown_.size());
    const double width = std::min(0.6 * slot, 90.0), middle = kLeft + (static_cast<double>(index) + 0.5) * slot;
    std::string svg;
    double y = kBottom;
    for (size_t c = 0; c < kNumCategories; ++c) {
      const double height = height_of(static_cast<double>(prediction.memory.at_peak[c]));
      if (height <= 0) continue;
      y -= height;
      svg += svg_rectangle(middle - width / 2, y, width, height, kCategoryColours[c]);
    }
    return svg + labels(prediction, slot, middle, y);
  }

  /// Below the bar what it is of, above it the peak; of narrow bars the number alone, and the greatest peak.
  std::string labels(const Prediction& prediction, double slot, double middle, double y) const {
    constexpr double kRoomForWords = 70;
    const bool wide = slot >= kRoomForWords;
    const int64_t peak = prediction.memory.peak_total;
    const auto is_higher = [peak](const Prediction& other) { return other.memory.peak_total > peak; };
    std::string svg;
    if (wide || std::none_of(shown_.begin(), shown_.end(), is_higher))
      svg += svg_text(middle, y - 6, "middle", 12, format_bytes(peak));
    if (!by_place_)
      return svg + svg_text(middle, kBottom + 20, "middle", 13, fmt::format("stage {}", prediction.layout.zero_stage));
    svg += svg_text(middle, kBottom + 20, "middle", 13, fmt::format("{}{}", wide ? "rank " : "", prediction.place));
    if (!wide) return svg;
    return svg +
           svg_text(middle, kBottom + 36, "middle", 11, held_stages(prediction.layout.pipeline, prediction.place));
  }

  std::string budget() const {
    if (report_.budgets.device == 0) return "";
    const double y = y_of(static_cast<double>(report_.budgets.device));
    return svg_line(kLeft, y, kRight, y, R"(stroke="#b00020" stroke-width="1.5" stroke-dasharray="6 4")") +
           svg_text(kRight + 4, y + 4, "start", 11, "budget " + format_bytes(report_.budgets.device));
  }

  std::string legend() const {
    std::string svg;
    double y = kTop + 40;
    for (size_t c = 0; c < kNumCategories; ++c) {
      const auto holds = [c](const Prediction& each) { return each.memory.at_peak[c] > 0; };
      if (std::none_of(shown_.begin(), shown_.end(), holds)) continue;
      svg += svg_rectangle(kRight + 24, y - 11, 13, 13, kCategoryColours[c]) +
             svg_text(kRight + 44, y, "start", 12, std::string(name_of(static_cast<Category>(c))));
      y += 22;
    }
    return svg;
  }

  const PlanReport& report_;
  bool by_place_;
  std::span<const Prediction> shown_;  // a bar each
  double top_;
};

}  // namespace

Drawing draw_memory(const PlanReport& report, std::span<const Prediction> places) {
  return Chart(report, places).draw();
}

}  // namespace nought
