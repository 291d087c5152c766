// PassOrder: the order in which passes of Units are expected, for prefetches.
#pragma once

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "nought/nn/section.h"

namespace nought {

class PassOrder {
 public:
  PassOrder() = default;
  explicit PassOrder(std::vector<UnitPass> order) : order_(std::move(order)) {}

  /// The passes that are expected behind this one, which begins. A pass that comes out of the order is the next of its
  /// kind in it, from the beginning if need be; one that is not in it moves nothing, and nothing follows.
  std::span<const UnitPass> behind(UnitPass pass) {
    const auto from = order_.begin() + static_cast<std::ptrdiff_t>(next_);
    auto found = std::find(from, order_.end(), pass);
    if (found == order_.end()) found = std::find(order_.begin(), from, pass);
    if (found == order_.end() || *found != pass) return {};
    next_ = static_cast<size_t>(found - order_.begin()) + 1;
    return std::span(order_).subspan(next_);
  }
  /// The place of the next one: behind that of the pass that began last.
  size_t next() const { return next_; }

 private:
  std::vector<UnitPass> order_;
  size_t next_ = 0;
};

}  // namespace nought
