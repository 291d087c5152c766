// Elements of files become those of tensors: rounded once, or refused.
#include "nought/io/convert.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::convert_test {
namespace {

template <class To, class From>
To converted(From value) {
  To result{};
  convert_elements(dtype_of_v<From>, reinterpret_cast<const std::byte*>(&value), dtype_of_v<To>,
                   reinterpret_cast<std::byte*>(&result), 1);
  return result;
}

TEST(ConvertElements, a_double_is_rounded_to_16_bits_once) {
  // Just above the middle of two bf16 values, but in fp32 that middle itself, which goes to the even one below.
  const double above = 1 + 0x1p-8 + 0x1p-40;
  EXPECT_EQ(static_cast<float>(converted<bf16_t>(above)), 1 + 0x1p-7F);
  EXPECT_EQ(static_cast<float>(converted<f16_t>(1 + 0x1p-11 + 0x1p-40)), 1 + 0x1p-10F);
}

TEST(ConvertElements, an_integer_that_does_not_fit_and_a_float_for_an_integer_are_refused) {
  EXPECT_EQ((converted<int32_t, int64_t>(-7)), -7);
  EXPECT_THROW((converted<int32_t, int64_t>(int64_t{1} << 40)), ShapeError);
  EXPECT_THROW((converted<int32_t, float>(1)), ShapeError);
  EXPECT_THROW((converted<float, int32_t>(1)), ShapeError);
}

TEST(ConvertElements, codes_of_8_bits_are_their_exact_values) {
  EXPECT_EQ(static_cast<float>(decode(Float8::e4m3, 0x7E)), 448);
  EXPECT_EQ(static_cast<float>(decode(Float8::e4m3, 0x81)), -0x1p-9F) << "the smallest";
  EXPECT_TRUE(std::isnan(static_cast<float>(decode(Float8::e4m3, 0x7F))));
  EXPECT_EQ(static_cast<float>(decode(Float8::e5m2, 0x7B)), 57344);
  EXPECT_TRUE(std::isinf(static_cast<float>(decode(Float8::e5m2, 0x7C))));
  const std::vector<uint8_t> codes{0x38, 0xB8};
  std::vector<double> values(2);
  convert_elements(Float8::e4m3, reinterpret_cast<const std::byte*>(codes.data()), DType::f64,
                   reinterpret_cast<std::byte*>(values.data()), 2);
  EXPECT_EQ(values, (std::vector<double>{1, -1}));
}

}  // namespace
}  // namespace nought::convert_test
