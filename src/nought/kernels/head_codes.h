// The codes of one head of one token, and what they stand for: see EncodeHeads. Every backend makes them so.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "nought/kernels/ops/heads.h"
#include "nought/kernels/rounding.h"

namespace nought {

/// E4M3 in a byte.
struct e4m3_t {
  uint8_t bits = 0;

  constexpr operator float() const { return e4m3_value(bits); }
};

/// The largest value of a code: of E4M3, of int8_t, or of int16_t, to which queries of keys in int8_t are rounded. Sums
/// of products with those are whole numbers that int32_t holds, and have the same bits in any order.
template <class Code>
inline constexpr float kLargestCode = std::is_same_v<Code, e4m3_t> ? 448.0f
                                      : sizeof(Code) == 1          ? 127.0f
                                                                   : 16383.0f;
/// So many of them.
inline constexpr int64_t kMostCodes = (int64_t{1} << 31) / (127 * 16383) - 1;

/// The code of |x| <= kLargestCode, to the nearest and ties to even.
template <class Code>
constexpr Code head_code(float x) {
  if constexpr (std::is_same_v<Code, e4m3_t>) {
    return {e4m3_code(x)};
  } else {
    constexpr float kSteps = 12582912.0f;  // 1.5 * 2^23: added and taken away, whole numbers are left
    return static_cast<Code>(x + kSteps - kSteps);
  }
}

/// Writes the codes of `count` values, int8_t, e4m3_t or int16_t, and returns their scale.
template <class T, class Code>
float encode_head(const T* x, int64_t count, Code* codes) {
  constexpr float kMost = kLargestCode<Code>;
  uint32_t bits = 0;  // as magnitudes they have the order of the values, and what is not finite is above
  for (int64_t i = 0; i < count; ++i)
    bits = std::max(bits, std::bit_cast<uint32_t>(static_cast<float>(x[i])) & 0x7FFFFFFFu);
  const bool is_finite = bits < 0x7F800000u;
  const float scale = is_finite ? std::bit_cast<float>(bits) / kMost : std::numeric_limits<float>::quiet_NaN();
  if (!(scale > 0)) {
    std::fill_n(codes, count, Code{});
    return scale;
  }
  // Among the subnormal numbers a scale may be too small for the largest value.
  for (int64_t i = 0; i < count; ++i)
    codes[i] = head_code<Code>(std::clamp(static_cast<float>(x[i]) / scale, -kMost, kMost));
  return scale;
}

/// Calls f(TypeTag<Code>{}) with the type that heads of this dtype consist of: a float, int8_t for i8, e4m3_t for u8.
template <class F>
decltype(auto) visit_head_elements(DType dtype, F&& f) {
  if (dtype == DType::i8) return f(TypeTag<int8_t>{});
  if (dtype == DType::u8) return f(TypeTag<e4m3_t>{});
  return visit_float(dtype, std::forward<F>(f));
}

/// The elements of a tensor of heads.
template <class T>
T* head_elements(const Tensor& base) {
  return reinterpret_cast<T*>(base.raw());
}

/// Writes the codes and scales of some of the tokens.
inline void encode_heads(const EncodeHeads& op, Interval tokens) {
  const int64_t stride = op.scales.dim(1);
  float* scales = op.scales.data<float>() + op.first;
  visit_head_elements(op.to.base.dtype(), [&](auto code_tag) {
    using Code = typename decltype(code_tag)::type;
    if constexpr (sizeof(Code) == 1) {
      visit_float(op.from.base.dtype(), [&](auto tag) {
        const auto* from = op.from.base.data<typename decltype(tag)::type>();
        Code* to = head_elements<Code>(op.to.base);
        for (int64_t t = tokens.begin; t < tokens.end; ++t)
          for (int64_t h = 0; h < op.num_heads; ++h)
            scales[h * stride + t] = encode_head(from + op.from.at(t, h, op.head_dim), op.head_dim,
                                                 to + op.to.at(op.first + t, h, op.head_dim));
      });
    }
  });
}

}  // namespace nought
