// Which rank is slow, and in what: the times of all ranks, compared at every log interval.
//
// Design goals: the times travel with the loss of a step (Engine::set_shared), so nothing is sent beside it; a rank is
// judged by its own work, without the time in which it waits for others, since at the end all ranks take as long as the
// slowest. Non-goals: finding a slow link. Whoever sends over one makes all its peers wait alike.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "nought/diagnose/breakdown.h"

namespace nought {

/// One kind of work over all ranks: seconds of a step, a mean over the steps of an interval.
struct TimeSpread {
  double min = 0, median = 0, max = 0;
  int slowest = 0;  // the rank that has max
};

/// The ranks' times in an interval of steps.
struct RankComparison {
  int64_t steps = 0;             // that the means are over
  TimeSpread forward, backward;  // without waiting
  TimeSpread communication;      // how long collectives were under way: the rank that comes last to them waits least
  TimeSpread data;               // reading samples
  std::string warning = {};      // a rank has been slower than the others for long; "" in most intervals

  /// Calls f("forward", forward), and so on.
  template <class F>
  void for_each(F&& f) const {
    f("forward", forward), f("backward", backward), f("communication", communication), f("data", data);
  }
};

class StragglerLog {
 public:
  /// interval: the steps between two comparisons. hosts: the name of each rank's host, for the warning.
  StragglerLog(int64_t interval, std::vector<std::string> hosts) : interval_(interval), hosts_(std::move(hosts)) {}

  /// This rank has made a step. The first one counts for nothing: memory is allocated in it, and kernels are compiled.
  void add(const StepBreakdown& times);
  /// What this rank shares in step `step`: its means since the last time, if the step is a multiple of the interval;
  /// else nothing. The step under way is a part of the next interval. All ranks share in the same steps.
  std::vector<double> take(int64_t step);
  /// What all ranks shared in step `step`, one behind the other. A rank whose own work takes more than 1.1 times that
  /// of the others' median in three intervals without a break is named; again after twice as many intervals, and so on.
  RankComparison compare(int64_t step, std::span<const double> shared);

 private:
  std::string judge(int64_t step, int64_t steps, std::span<const double> shared);

  int64_t interval_;
  bool first_ = true;
  std::vector<std::string> hosts_;
  StepBreakdown sum_;
  int64_t steps_ = 0;  // that are in it
  int suspect_ = -1;   // the rank that was slow in the last interval
  int64_t since_ = 0, intervals_ = 0, next_warning_ = 0;
};

}  // namespace nought
