// Samples: what was measured again and again, of which the median counts.
#pragma once

#include <vector>

namespace nought {

/// Values of repeated measurements.
struct Samples {
  std::vector<double> values;

  double min() const;
  double median() const;
  double max() const;
};

}  // namespace nought
