// Coverage: records which elements of a tensor have been written, and refuses to record one twice.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "nought/base/math.h"

namespace nought {

class Coverage {
 public:
  /// Adds an interval of elements. Returns false, and adds nothing, if any of them is recorded already.
  bool add(Interval added) {
    if (added.empty()) return true;
    const auto next = std::lower_bound(parts_.begin(), parts_.end(), added.begin,
                                       [](const Interval& a, int64_t begin) { return a.end < begin; });
    // `next` ends at or behind the new interval's begin: it may touch it on the left, overlap it, or lie to the right.
    auto right = next;
    if (right != parts_.end() && right->end == added.begin) ++right;
    if (right != parts_.end() && right->begin < added.end) return false;
    if (right != next) added.begin = next->begin;
    if (right != parts_.end() && right->begin == added.end) added.end = (right++)->end;
    parts_.insert(parts_.erase(next, right), added);
    return true;
  }
  /// How many elements are recorded.
  int64_t size() const {
    int64_t total = 0;
    for (const Interval& part : parts_) total += part.size();
    return total;
  }

 private:
  std::vector<Interval> parts_;  // disjoint, ascending, not touching
};

}  // namespace nought
