// The figures of a run that are shown beside those of others: how far it is, its loss, its speed and its memory.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "nought/report/run_folder.h"

namespace nought {

/// The members of a JSON list; none if it is no list.
const std::vector<Json>& rows_of(const Json& list);

/// The peak of a rank, or the predicted one.
struct MemoryRow {
  std::string name;   // "predicted", "rank 0, measured"
  const Json* peaks;  // peak_total, at_peak by category, host_peak, file_peak
};
/// What was predicted, once for all ranks if it is the same, then each rank's measurement.
std::vector<MemoryRow> memory_rows(const RunFolder& run);

/// The middle one of the numbers that are no NaN; NaN if there is none.
double median_of(std::span<const double> values);

/// A figure by its name, and as text of a run; "" if the run does not tell it.
struct RunFigure {
  std::string name;
  std::function<std::string(const RunFolder&)> text;
};
/// "state", "steps", "loss", ..., in the order in which they are shown.
const std::vector<RunFigure>& run_figures();

/// "llama with 9.26M parameters in f32, 2 ranks, ZeRO stage 2, from random weights from seed 1".
std::string describe_run(const RunFolder& run);

/// A longer time between two rows than this is a pause between two starts, or a clock that was set. `times`: of steps.
double longest_step(std::span<const double> times);
/// Seconds from the first to the last step of all starts, without the pauses between them.
double seconds_of_run(const RunFolder& run);

}  // namespace nought
