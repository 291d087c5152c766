// Figures of a benchmark beside the limit that they are a fraction of, as a table for people or JSON for programs.
#pragma once

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "nought/io/file_format.h"

namespace nought {

/// Values of repeated measurements.
struct Samples {
  std::vector<double> values;

  double min() const;
  double median() const;
  double max() const;
};

/// Seconds that f takes.
template <class F>
double seconds_of(F&& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// What else was seen while a figure was measured: a column of the table.
struct Fact {
  std::string name;  // "extra memory"
  double value = 0;
  std::string unit = {};  // "B", "s", "%" of 1, or "" for a count
};

/// The limit that no figure may exceed: kernels/limits.h, measure_matrix_peak(). Others, such as a triad, may be.
inline constexpr const char* kMatrixPeak = "matrix peak";

/// One measured thing. The machine's speed changes from minute to minute, so the limit is measured beside every
/// sample, and the fraction is of pairs.
struct Figure {
  std::string name;        // "query, key, value 4096 x 2304 x 768"
  double work = 0;         // done in one sample: FLOP, bytes or tokens
  std::string unit;        // "FLOP", "B", "tokens"; "" for what has a time alone
  std::string limit_name;  // "matrix peak"; "" without a limit
  Samples seconds = {};
  Samples limits = {};      // what the limit was beside each sample, in units of limited_work per second
  double limited_work = 0;  // in units of the limit, where they differ from `unit`; 0 = work
  std::vector<Fact> facts = {};

  double rate() const { return work / seconds.median(); }
  /// Units of the limit that a sample of so many seconds reached per second.
  double reached(double sample_seconds) const { return (limited_work > 0 ? limited_work : work) / sample_seconds; }
  /// The median over samples of what was reached of the limit.
  double fraction() const;
};

/// The peak beside a sample that reached `reached`. The machine may have become faster since it was measured, so it is
/// measured again where it was exceeded; what was reached is the least that it can be.
template <class Limit>
double raised_peak(double measured, double reached, Limit&& limit) {
  return reached <= measured ? measured : std::max(limit(), reached);
}

/// Samples in turn of limit() and f() until `samples` are taken. Each f() is repeated until it has taken
/// `least_seconds`, so that what is short is measured as well; the time is that of one.
template <class Limit, class F>
void measure(Figure& figure, int samples, double least_seconds, Limit&& limit, F&& f) {
  f();
  int repeats = 1;
  for (double once = seconds_of(f); once * repeats < least_seconds && repeats < 1 << 20;) repeats *= 2;
  for (int i = 0; i < samples; ++i) {
    double beside = limit();
    const double seconds = seconds_of([&] {
                             for (int k = 0; k < repeats; ++k) f();
                           }) /
                           repeats;
    if (figure.limit_name == kMatrixPeak) beside = raised_peak(beside, figure.reached(seconds), limit);
    figure.limits.values.push_back(beside);
    figure.seconds.values.push_back(seconds);
  }
}

/// One line per figure.
std::string to_table(const std::vector<Figure>& figures);
nlohmann::ordered_json to_json(const std::vector<Figure>& figures);

inline constexpr FileFormat kBenchReportFormat{"nought-bench", 1};
/// The object that `nought bench --json` prints.
nlohmann::ordered_json bench_report(int ranks, int threads_per_rank, const std::vector<Figure>& figures);

}  // namespace nought
