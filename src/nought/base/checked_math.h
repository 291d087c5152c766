// Arithmetic of numbers that files say, and which may be absurd.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

namespace nought {

/// `first` times all factors, from the first on. nullopt if a factor is negative, or a product on the way is larger
/// than `most`.
template <class Range>
std::optional<int64_t> checked_product(int64_t first, const Range& factors,
                                       int64_t most = std::numeric_limits<int64_t>::max()) {
  for (const int64_t factor : factors)
    if (factor < 0 || __builtin_mul_overflow(first, factor, &first) || first > most) return std::nullopt;
  return first;
}

}  // namespace nought
