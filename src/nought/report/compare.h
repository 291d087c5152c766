// Comparison: what differs between runs: their settings, the losses of the steps that they share, speed and memory.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nought/base/json.h"
#include "nought/io/file_format.h"
#include "nought/report/run_folder.h"

namespace nought {

/// A name with what each run has under it; "" where a run has nothing.
struct ComparedRow {
  std::string name;
  std::vector<std::string> values;
};

/// The rows of what was set in RUN.json and on the command line that differ, and of resolved values that differ without
/// one of these as their reason. Where a run writes (output_dir and the like) is no difference.
std::vector<ComparedRow> differing_settings(std::span<const RunFolder> runs);
/// Speed, memory and the last losses, also where they are the same.
std::vector<ComparedRow> measured_rows(std::span<const RunFolder> runs);

/// A loss of one step in two runs.
struct LossPair {
  int64_t step = 0;
  double first = 0, other = 0;
};
/// The losses of the steps that two runs share, or their validation losses.
struct LossComparison {
  int64_t steps = 0;               // that both have
  std::optional<LossPair> bits;    // the first whose losses differ
  std::optional<LossPair> beyond;  // the first that differs by more than kLossTolerance, relatively
  LossPair most;                   // the largest difference, if any
  bool equal() const { return !bits; }
};
inline constexpr double kLossTolerance = 1e-5;
LossComparison compare_losses(const StepTable& first, const StepTable& other, const std::string& column);

struct Comparison {
  std::vector<std::string> names;
  std::vector<ComparedRow> settings;        // see differing_settings()
  std::vector<LossComparison> losses;       // of each run but the first with the first
  std::vector<LossComparison> validations;  // the same; without steps where nothing was validated
  std::vector<ComparedRow> measured;        // see measured_rows()

  /// Whether a setting or a loss differs.
  bool differs() const;
};
inline constexpr FileFormat kCompareFormat{"nought-compare", 1};

/// ConfigError if a run has no step in common with the first, or if there are fewer than two runs.
Comparison compare_runs(std::span<const RunFolder> runs);
/// Tables of at most `width` columns (0: no limit).
std::string to_text(const Comparison& comparison, int width);
OrderedJson to_json(const Comparison& comparison);

}  // namespace nought
