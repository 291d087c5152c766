// Element types: their names and sizes, and the two 16-bit floats with their conversions (round to nearest even).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>

#include "nought/base/error.h"

namespace nought {

enum class DType : uint8_t { f64, f32, bf16, f16, i64, i32, u8, i8 };

constexpr int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
      return 2;
    case DType::u8:
    case DType::i8:
      return 1;
  }
  return 0;
}

constexpr std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "f64";
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
    case DType::i64:
      return "i64";
    case DType::i32:
      return "i32";
    case DType::u8:
      return "u8";
    case DType::i8:
      return "i8";
  }
  return "?";
}

constexpr bool is_float(DType dtype) { return dtype <= DType::f16; }
/// The dtype that sums over values of a float dtype run in, and that statistics of rows are kept in.
constexpr DType statistics_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

/// bfloat16: the upper half of an fp32.
struct bf16_t {
  uint16_t bits = 0;

  constexpr bf16_t() = default;
  constexpr explicit bf16_t(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u) {
      bits = static_cast<uint16_t>((u >> 16) | 0x40u);  // a NaN stays a (quiet) NaN
    } else {
      bits = static_cast<uint16_t>((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
    }
  }
  constexpr operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

/// IEEE 754 binary16.
struct f16_t {
  uint16_t bits = 0;

  constexpr f16_t() = default;
  constexpr explicit f16_t(float value) : bits(encode(value)) {}
  constexpr operator float() const { return decode(bits); }

 private:
  static constexpr uint16_t encode(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    const auto sign = static_cast<uint16_t>((u >> 16) & 0x8000u);
    const uint32_t a = u & 0x7FFFFFFFu;
    if (a > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u);
    if (a >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7C00u);  // >= 65536; 65520..65536 rounds up below
    if (a < 0x38800000u) {                                               // subnormal or zero: units of 2^-24
      const uint32_t exponent = a >> 23;
      if (exponent < 102) return sign;  // below half of the smallest subnormal
      const uint32_t mantissa = (a & 0x7FFFFFu) | 0x800000u;
      const uint32_t shift = 126 - exponent;  // 14..24
      const uint32_t rest = mantissa & ((1u << shift) - 1);
      const uint32_t half = 1u << (shift - 1);
      uint32_t result = mantissa >> shift;
      if (rest > half || (rest == half && (result & 1u))) ++result;
      return static_cast<uint16_t>(sign | result);
    }
    const uint32_t rounded = a + 0xFFFu + ((a >> 13) & 1u);
    return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
  }
  static constexpr float decode(uint16_t h) {
    const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
    const uint32_t exponent = (h >> 10) & 0x1Fu;
    const uint32_t mantissa = h & 0x3FFu;
    if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
    if (exponent == 0) {
      const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
      return sign ? -magnitude : magnitude;
    }
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  }
};

template <class T>
struct dtype_of;
template <>
struct dtype_of<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct dtype_of<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct dtype_of<bf16_t> {
  static constexpr DType value = DType::bf16;
};
template <>
struct dtype_of<f16_t> {
  static constexpr DType value = DType::f16;
};
template <>
struct dtype_of<int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct dtype_of<int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct dtype_of<uint8_t> {
  static constexpr DType value = DType::u8;
};
template <>
struct dtype_of<int8_t> {
  static constexpr DType value = DType::i8;
};
template <class T>
inline constexpr DType dtype_of_v = dtype_of<T>::value;

template <class T>
struct TypeTag {
  using type = T;
};

/// Calls f(TypeTag<T>{}) with the C++ type of a floating-point dtype; ShapeError for integers.
template <class F>
decltype(auto) visit_float(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f64:
      return f(TypeTag<double>{});
    case DType::f32:
      return f(TypeTag<float>{});
    case DType::bf16:
      return f(TypeTag<bf16_t>{});
    case DType::f16:
      return f(TypeTag<f16_t>{});
    default:
      fail<ShapeError>("expected a floating-point dtype, got {}", name_of(dtype));
  }
}

/// Calls f(TypeTag<T>{}) with the C++ type of any dtype.
template <class F>
decltype(auto) visit_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::i64:
      return f(TypeTag<int64_t>{});
    case DType::i32:
      return f(TypeTag<int32_t>{});
    case DType::u8:
      return f(TypeTag<uint8_t>{});
    case DType::i8:
      return f(TypeTag<int8_t>{});
    default:
      return visit_float(dtype, std::forward<F>(f));
  }
}

/// Sums run in this type: double for double, fp32 for every narrower float.
template <class T>
using accumulator_t = std::conditional_t<std::is_same_v<T, double>, double, float>;

}  // namespace nought
