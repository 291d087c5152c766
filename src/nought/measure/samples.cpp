#include "nought/measure/samples.h"

#include <algorithm>

#include "nought/base/error.h"

namespace nought {

double Samples::min() const { return *std::min_element(values.begin(), values.end()); }
double Samples::max() const { return *std::max_element(values.begin(), values.end()); }

double Samples::quantile(double part) const {
  require(!values.empty(), "a quantile of no values");
  std::vector<double> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  const double place = part * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const double rest = place - static_cast<double>(below);
  // Half of two values is their mean to the bit.
  return rest == 0 ? sorted[below] : sorted[below] * (1 - rest) + sorted[below + 1] * rest;
}

}  // namespace nought
