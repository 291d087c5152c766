// processor_seconds(): for how long this thread had a core.
#pragma once

#include <ctime>

namespace nought {

inline double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Seconds of a core that f takes on this thread.
template <class F>
double processor_seconds_of(F&& f) {
  const double begin = processor_seconds();
  f();
  return processor_seconds() - begin;
}

}  // namespace nought
