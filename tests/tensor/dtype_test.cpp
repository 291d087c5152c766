#include "nought/tensor/dtype.h"

#include <cmath>

#include <gtest/gtest.h>

namespace nought::dtype_test {
namespace {

TEST(DType, every_f16_code_survives_a_round_trip) {
  for (uint32_t code = 0; code < 65536; ++code) {
    f16_t h;
    h.bits = static_cast<uint16_t>(code);
    const float value = h;
    if (std::isnan(value)) continue;
    EXPECT_EQ(f16_t(value).bits, h.bits) << code;
  }
}

TEST(DType, f16_rounds_to_nearest_even_at_every_midpoint) {
  for (uint32_t code = 0; code + 1 <= 0x7BFF; ++code) {  // all finite neighbours
    f16_t low, high;
    low.bits = static_cast<uint16_t>(code), high.bits = static_cast<uint16_t>(code + 1);
    const float middle = (static_cast<float>(low) + static_cast<float>(high)) / 2;
    EXPECT_EQ(f16_t(middle).bits, code % 2 == 0 ? low.bits : high.bits) << code;
    EXPECT_EQ(f16_t(std::nextafter(middle, 0.0f)).bits, low.bits) << code;
    EXPECT_EQ(f16_t(std::nextafter(middle, 1e9f)).bits, high.bits) << code;
  }
  EXPECT_EQ(f16_t(65519.0f).bits, 0x7BFF);
  EXPECT_EQ(f16_t(65520.0f).bits, 0x7C00);
}

TEST(DType, bf16_rounds_to_nearest_even_and_keeps_nan) {
  EXPECT_EQ(bf16_t(1.00390625f).bits, 0x3F80);  // the midpoint of 1 and 1 + 2^-7 goes to the even one
  EXPECT_EQ(bf16_t(1.01171875f).bits, 0x3F82);
  EXPECT_TRUE(std::isnan(static_cast<float>(bf16_t(std::nanf("")))));
  EXPECT_TRUE(std::isinf(static_cast<float>(bf16_t(3.4e38f))));
}

TEST(DType, sizes_names_and_types_agree) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8})
    visit_dtype(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      EXPECT_EQ(size_of(dtype), static_cast<int64_t>(sizeof(T))) << name_of(dtype);
      EXPECT_EQ(dtype_of_v<T>, dtype);
      EXPECT_EQ(is_float(dtype), !std::is_integral_v<T>);
    });
}

TEST(DType, an_integer_is_no_float) {
  EXPECT_THROW(visit_float(DType::i32, [](auto) {}), ShapeError);
}

}  // namespace
}  // namespace nought::dtype_test
