#include "nought/measure/samples.h"

#include <algorithm>

#include "nought/base/error.h"

namespace nought {

double Samples::min() const { return *std::min_element(values.begin(), values.end()); }
double Samples::max() const { return *std::max_element(values.begin(), values.end()); }

double Samples::median() const {
  require(!values.empty(), "the median of no values");
  std::vector<double> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  const size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

}  // namespace nought
