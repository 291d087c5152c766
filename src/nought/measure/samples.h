// Samples: what was measured again and again, of which the median counts.
#pragma once

#include <vector>

namespace nought {

/// Values of repeated measurements.
struct Samples {
  std::vector<double> values;

  double min() const;
  double median() const { return quantile(0.5); }
  /// The value below which `part` of them lie, between two of them by their distance (numpy's linear method).
  double quantile(double part) const;
  double max() const;
};

}  // namespace nought
