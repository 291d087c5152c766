#include "nought/io/convert.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
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

double number_at(DType dtype, const std::byte* at) {
  double number = 0;
  visit_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_integral_v<T>) number = static_cast<double>(load<T>(at, 0));
    if constexpr (!std::is_integral_v<T>) number = convert_float<double>(load<T>(at, 0));
  });
  return number;
}

bf16_t decode(Float8 format, uint8_t code) {
  if (format == Float8::e8m0)
    return bf16_t(code == 0xFF ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, int{code} - 127));
  f16_t half;
  half.bits = static_cast<uint16_t>(code << 8);
  if (format == Float8::e5m2) return bf16_t(half);
  // E4M3's 7 bits below the sign, at binary16's place, are off by the biases' difference, 15 - 7.
  if ((code & 0x7F) == 0x7F) return bf16_t(std::numeric_limits<float>::quiet_NaN());
  half.bits = static_cast<uint16_t>((code & 0x80) << 8 | (code & 0x7F) << 7);
  return bf16_t(static_cast<float>(half) * 0x1p8f);
}

void convert_elements(Float8 from, const std::byte* source, DType to, std::byte* target, int64_t count) {
  require<ShapeError>(is_float(to), "8-bit floats do not convert to {}", name_of(to));
  std::array<bf16_t, 256> values;
  for (size_t code = 0; code < values.size(); ++code) values[code] = decode(from, static_cast<uint8_t>(code));
  visit_float(to, [&](auto tag) {
    using To = typename decltype(tag)::type;
    for (int64_t i = 0; i < count; ++i)
      store(target, i, convert_float<To>(static_cast<float>(values[std::to_integer<size_t>(source[i])])));
  });
}

}  // namespace nought
