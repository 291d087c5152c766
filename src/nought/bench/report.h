// Figure: a measured time beside the limit that bounds it, and reports of figures as a table for people or JSON for
// programs.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "nought/base/json.h"
#include "nought/base/timing.h"
#include "nought/io/file_format.h"
#include "nought/measure/samples.h"

namespace nought {

/// Something else that was measured with a figure. It is a column of the table.
struct Fact {
  std::string name;  // "extra memory"
  double value = 0;
  std::string unit = {};  // "B", "s", "%" of 1, or "" for a count
};

/// The name of the limit that no figure may exceed: measure_matrix_peak() of kernels/limits.h. A figure may exceed
/// other limits, such as a triad.
inline constexpr const char* kMatrixPeak = "matrix peak";

/// One thing that was measured. A machine's speed changes from minute to minute. So the limit is measured beside every
/// sample, and the fraction is the median over these pairs.
struct Figure {
  std::string name;        // "query, key, value 4096 x 2304 x 768"
  double work = 0;         // done in one sample: FLOP, bytes or tokens
  std::string unit;        // the unit of work: "FLOP", "B", "tokens"; "" if only the time counts
  std::string limit_name;  // "matrix peak"; "" without a limit
  Samples seconds = {};
  Samples limits = {};                // the limit beside each sample, in units of limited_work per second
  double limited_work = 0;            // the work in the limit's unit, if that is another one; 0 = work
  std::string limited_unit = "FLOP";  // that unit
  std::vector<Fact> facts = {};

  double rate() const { return work / seconds.median(); }
  /// The rate of a sample of so many seconds, in the limit's unit per second.
  double reached(double sample_seconds) const { return (limited_work > 0 ? limited_work : work) / sample_seconds; }
  /// The fraction of the limit that was reached: the median over the samples.
  double fraction() const;
};

/// The peak beside a sample whose rate was `reached`. If the sample exceeded the measured peak, the machine has become
/// faster: the peak is measured again by limit(), and is at least `reached`.
template <class Limit>
double raised_peak(double measured, double reached, Limit&& limit) {
  return reached <= measured ? measured : std::max(limit(), reached);
}

/// Takes `samples` samples of limit() and f() in turn. In each sample f() is repeated until it has taken
/// `least_seconds`, so that a short f() can be measured; the time that is noted is that of one call.
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
OrderedJson to_json(const std::vector<Figure>& figures);

inline constexpr FileFormat kBenchReportFormat{"nought-bench", 1};
/// The object that `nought bench --json` prints.
OrderedJson bench_report(int ranks, int threads_per_rank, const std::vector<Figure>& figures);

}  // namespace nought
