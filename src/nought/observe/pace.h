// Pace: how long the steps that are left will take, by those that were made.
#pragma once

#include <cstdint>
#include <deque>

namespace nought {

class Pace {
 public:
  /// A step took so long. The first one also allocates what later ones use again, so it is forgotten when there are
  /// others.
  void add_step(double seconds);
  /// Something between the steps, such as a validation, took so long. It is expected to come again as often.
  void add_pause(double seconds) { paused_ += seconds; }
  /// The seconds that `steps` further steps will take. One slow step changes this little: it counts as one in fifty,
  /// and as at most three of the usual ones of late.
  double seconds_for(int64_t steps) const;
  /// Whether enough steps were made to tell.
  bool knows() const { return steps_ >= 5; }

 private:
  int64_t steps_ = 0;
  std::deque<double> recent_;  // seconds of the last steps but for the first
  double mean_ = 0;            // seconds of a step, the last ones above all
  double paused_ = 0;          // seconds, in all
};

}  // namespace nought
