#include "nought/models/convert.h"

#include <cstring>
#include <type_traits>
#include <utility>

namespace nought {

namespace {

template <class T>
T load(const std::byte* source, int64_t index) {
  T value;
  std::memcpy(&value, source + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <class T>
void store(std::byte* target, int64_t index, T value) {
  std::memcpy(target + index * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

// A double goes to 16 bits in one rounding: through an fp32 rounded to odd, whose last bit remembers what was cut off.
float round_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || !std::isfinite(nearest)) return nearest;
  const bool went_up = (static_cast<double>(nearest) > value) == (value > 0);  // away from zero
  const auto bits = std::bit_cast<uint32_t>(nearest) - (went_up ? 1u : 0u);
  return std::bit_cast<float>(bits | 1u);
}

template <class To, class From>
To convert_float(From value) {
  if constexpr (std::is_same_v<From, double> && sizeof(To) == 2) {
    return To(round_to_odd(value));
  } else if constexpr (sizeof(To) == 2) {
    return To(static_cast<float>(value));
  } else {
    return static_cast<To>(value);
  }
}

template <class From, class To>
void convert_integers(const std::byte* source, std::byte* target, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const From value = load<From>(source, i);
    require<ShapeError>(std::in_range<To>(value), "element {} is {}, which {} cannot hold", i, int64_t{value},
                        name_of(dtype_of_v<To>));
    store(target, i, static_cast<To>(value));
  }
}

}  // namespace

void convert_elements(DType from, const std::byte* source, DType to, std::byte* target, int64_t count) {
  if (count == 0) return;
  if (from == to) {
    std::memcpy(target, source, static_cast<size_t>(count * size_of(from)));
    return;
  }
  require<ShapeError>(is_float(from) == is_float(to), "{} does not convert to {}", name_of(from), name_of(to));
  visit_dtype(from, [&](auto from_tag) {
    using From = typename decltype(from_tag)::type;
    visit_dtype(to, [&](auto to_tag) {
      using To = typename decltype(to_tag)::type;
      if constexpr (std::is_integral_v<From> && std::is_integral_v<To>) {
        convert_integers<From, To>(source, target, count);
      } else if constexpr (!std::is_integral_v<From> && !std::is_integral_v<To>) {
        for (int64_t i = 0; i < count; ++i) store(target, i, convert_float<To>(load<From>(source, i)));
      }
    });
  });
}

}  // namespace nought
