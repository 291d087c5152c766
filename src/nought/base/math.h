// Integer arithmetic that every layer needs.
#pragma once

#include <cstdint>

namespace nought {

/// a / b, rounded up; a >= 0, b > 0.
constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
/// The smallest multiple of `multiple` that is not below a; a >= 0.
constexpr int64_t round_up(int64_t a, int64_t multiple) { return ceil_div(a, multiple) * multiple; }

/// A half-open range [begin, end) of element indices.
struct Interval {
  int64_t begin = 0;
  int64_t end = 0;

  constexpr int64_t size() const { return end - begin; }
  constexpr bool empty() const { return end <= begin; }
  friend constexpr bool operator==(const Interval&, const Interval&) = default;
};

/// The common part of two intervals; empty (size 0) if they do not meet.
constexpr Interval intersect(Interval a, Interval b) {
  const int64_t begin = a.begin > b.begin ? a.begin : b.begin;
  const int64_t end = a.end < b.end ? a.end : b.end;
  return {begin, end < begin ? begin : end};
}

}  // namespace nought
