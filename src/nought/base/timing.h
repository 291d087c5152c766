// seconds_of(): how long something takes; seconds_since_1970(): what time it is.
#pragma once

#include <chrono>

namespace nought {

/// Seconds that f takes.
template <class F>
double seconds_of(F&& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// By the clock of the system, which may be set.
inline double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace nought
