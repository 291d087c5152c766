#include "nought/compress/schedules.h"

#include <algorithm>
#include <cmath>

namespace nought {

int BitSchedule::bits_at(int64_t step) const {
  int bits = start_bits;
  for (int64_t at = std::max<int64_t>(period, 1); bits > target_bits && step >= at; at *= 2) --bits;
  return bits;
}

int64_t BitSchedule::last_fall(int64_t step) const {
  int64_t last = 0;
  int bits = start_bits;
  for (int64_t at = std::max<int64_t>(period, 1); bits > target_bits && step >= at; at *= 2) --bits, last = at;
  return last;
}

double unquantized_share(double change, int64_t step) {
  return std::clamp(1 - change * static_cast<double>(step), 0.0, 1.0);
}

bool SparsitySchedule::prunes_at(int64_t step) const {
  return begin <= step && step <= end && (step - begin) % stride == 0;
}

double SparsitySchedule::at(int64_t step) const {
  const int64_t prunings = (end - begin) / stride;
  if (prunings == 0) return target;
  const auto made = static_cast<double>(std::clamp<int64_t>((step - begin) / stride, 0, prunings));
  return std::min(target, 1 - std::pow(1 - target, made / static_cast<double>(prunings)));
}

}  // namespace nought
