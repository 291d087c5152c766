// The curves of runs: which numbers are shown, and how many points of them. Of many points the least and the greatest
// of each stretch stay, so that no spike is lost.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "nought/report/run_folder.h"

namespace nought {

/// Colours of runs on a light ground, at a contrast of 4.5 with it.
inline constexpr std::array<const char*, 8> kRunColours{"#0069a6", "#a85200", "#00705a", "#9a3a7a",
                                                        "#1b1b1b", "#5a55c8", "#a3001b", "#5c6600"};

/// Points of a curve, by rising steps. Every point is one of the run's, but those of a smoothed curve.
struct Curve {
  size_t run = 0;               // its index
  std::string kind = "raw";     // "raw", "smooth", "validation" or "discarded"
  std::vector<int64_t> steps;   // of each point
  std::vector<double> seconds;  // since the run's first step, without pauses between its starts; NaN: not known
  std::vector<double> values;   // NaN: there was no number
};
struct CurveChart {
  std::string name;   // the column's, "grad_norm"
  std::string title;  // "gradient norm"
  std::string unit;   // "%" for shares, else ""
  std::vector<Curve> curves;
};

/// The curve of a column, thinned to `stretches` stretches with the least and the greatest point of each; all points if
/// there are not more than two for each stretch. `seconds`: one per row.
Curve thinned_curve(const StepTable& table, const std::vector<double>& values, const std::vector<double>& seconds,
                    int64_t stretches);

/// The exponential mean of the values so far, corrected for its start; each weighs 2 / (window + 1). NaN counts for
/// nothing.
std::vector<double> smoothed(std::span<const double> values, double window);

/// Loss (with validation and steps that were made again), learning rate, gradient norm, tokens/s and MFU, then every
/// other column. A chart is there if a run has numbers for it.
std::vector<CurveChart> charts_of(std::span<const RunFolder> runs);

}  // namespace nought
