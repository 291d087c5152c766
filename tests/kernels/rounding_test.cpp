// Rounding at random is right on average and to neighbours only; the 8-bit grids are those of the OCP specification.
#include "nought/kernels/rounding.h"

#include "support/kernel_test.h"

#include "nought/kernels/ops/rounding.h"

namespace nought::rounding_test {
namespace {

using namespace test;

/// The value of an OFP8 code, from the specification's tables 1 and 2: sign, exponent, mantissa; NaN and infinity.
double value_of(int code, int exponent_bits, int mantissa_bits, bool has_infinity) {
  const int exponent_mask = (1 << exponent_bits) - 1, mantissa_mask = (1 << mantissa_bits) - 1;
  const int exponent = code >> mantissa_bits & exponent_mask, mantissa = code & mantissa_mask;
  const double sign = code & 0x80 ? -1 : 1;
  if (exponent == exponent_mask && has_infinity)
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  if (exponent == exponent_mask && mantissa == mantissa_mask) return std::numeric_limits<double>::quiet_NaN();
  const int bias = (1 << (exponent_bits - 1)) - 1;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

struct Format {
  Fp8 format;
  int exponent_bits, mantissa_bits;
  bool has_infinity;
  double largest;

  /// All finite values, ascending, and whether the code of each is even.
  std::vector<std::pair<double, bool>> values() const {
    std::vector<std::pair<double, bool>> values;
    for (int code = 0; code < 256; ++code)
      if (const double value = value_of(code, exponent_bits, mantissa_bits, has_infinity);
          std::isfinite(value) && code != 0x80)
        values.emplace_back(value, code % 2 == 0);
    std::sort(values.begin(), values.end());
    return values;
  }
};
const std::vector<Format> kFormats{{Fp8::e4m3, 4, 3, false, 448}, {Fp8::e5m2, 5, 2, true, 57344}};

class Rounding : public KernelTest {
 protected:
  Tensor round(const Tensor& x, Fp8 format, double scale = 1) {
    const Tensor y = empty(x.shape(), x.dtype()), expected = empty(x.shape(), x.dtype());
    run(RoundFp8{.x = x, .y = y, .format = format, .scale = scale});
    reference::run(RoundFp8{.x = x, .y = expected, .format = format, .scale = scale});
    expect_same_bits(y, expected);
    return y;
  }
};

TEST_F(Rounding, every_code_of_both_formats_is_kept) {
  for (const Format& each : kFormats) {
    const auto values = each.values();
    EXPECT_EQ(values.size(), each.has_infinity ? 247u : 253u);  // of 256, without NaN, infinities and -0
    EXPECT_EQ(values.back().first, each.largest);
    std::vector<float> x;
    for (const auto& [value, even] : values) x.push_back(static_cast<float>(value));
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Tensor exact = converted(*memory_, of<float>(x), dtype);
      expect_same_bits(converted(*memory_, exact, DType::f32), of<float>(x));
      expect_same_bits(round(exact, each.format), exact);
      expect_same_bits(round(exact, each.format, 1.0), exact);
    }
  }
}

TEST_F(Rounding, what_lies_between_two_codes_goes_to_the_nearer_one_and_ties_go_to_the_even_one) {
  for (const Format& each : kFormats) {
    const auto values = each.values();
    std::vector<float> x, expected;
    for (size_t i = 0; i + 1 < values.size(); ++i) {
      const auto [low, low_is_even] = values[i];
      const double high = values[i + 1].first;
      for (const double part : {0.25, 0.5, 0.75}) {
        x.push_back(static_cast<float>(low + part * (high - low)));
        expected.push_back(static_cast<float>(part < 0.5 || (part == 0.5 && low_is_even) ? low : high));
      }
    }
    const std::vector<float> actual = round(of<float>(x), each.format).to_vector<float>();
    for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(actual[i], expected[i]) << x[i];
  }
}

TEST_F(Rounding, finite_values_saturate_and_others_stay_what_they_are) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const Format& each : kFormats) {
    const auto largest = static_cast<float>(each.largest);
    const std::vector<float> y =
        round(of<float>({1e30f, -3e38f, largest * 1.01f, infinity, -infinity, std::nanf("")}), each.format)
            .to_vector<float>();
    EXPECT_EQ(y[0], largest);
    EXPECT_EQ(y[1], -largest);
    EXPECT_EQ(y[2], largest);
    EXPECT_EQ(y[3], infinity);
    EXPECT_EQ(y[4], -infinity);
    EXPECT_TRUE(std::isnan(y[5]));
  }
}

TEST_F(Rounding, a_scale_moves_the_grid) {
  const Tensor x = random({1000}, DType::f32, 3);
  for (const Format& each : kFormats)
    for (const double scale : {0.25, 64.0}) {
      const Tensor scaled = cloned(*memory_, x);
      run(Scale{.x = scaled, .factor = scale});
      const Tensor expected = round(scaled, each.format);
      run(Scale{.x = expected, .factor = 1 / scale});
      expect_same_bits(round(x, each.format, scale), expected);
    }
}

TEST_F(Rounding, a_largest_value_on_the_device_makes_the_scale) {
  const Tensor x = random({1000}, DType::f32, 3);
  for (const Format& each : kFormats)
    for (const float value : {3.7f, 448.0f, 450.0f, 1e-38f, 1e38f, 0.0f, std::numeric_limits<float>::infinity()})
      for (const int margin : {0, 2}) {
        const Tensor largest = of<float>({value}), y = empty(x.shape(), x.dtype()),
                     expected = empty(x.shape(), x.dtype());
        const double scale = fp8_scale(value, each.format, margin);
        const bool has_scale = value > 0 && std::isfinite(value);
        EXPECT_EQ(scale == 1, !has_scale || (value == 448.0f && each.format == Fp8::e4m3 && margin == 0)) << value;
        if (has_scale && value < 1e30f && value > 1e-30f) {
          EXPECT_LE(value * scale * std::exp2(margin), each.largest);
          EXPECT_GT(value * scale * std::exp2(margin) * 2, each.largest);
        }
        run(RoundFp8{.x = x, .y = y, .largest = largest, .format = each.format, .margin = margin});
        reference::run(RoundFp8{.x = x, .y = expected, .largest = largest, .format = each.format, .margin = margin});
        expect_same_bits(y, expected);
        expect_same_bits(y, round(x, each.format, scale));
      }
  EXPECT_THROW(run(RoundFp8{.x = x, .y = empty({1000}, DType::f32), .largest = empty({2}, DType::f32)}), ShapeError);
}

TEST_F(Rounding, the_largest_magnitude_is_found_wherever_it_is) {
  for (const DType dtype : kCpuDTypes)
    for (const int64_t n : {1, 17, 65537}) {
      Tensor x = converted(*memory_, random({n}, DType::f32, 9), dtype), largest = empty({1}, DType::f32);
      run(AbsMax{.x = x, .out = largest});
      double expected = 0;
      for (const double value : x.to_vector<double>()) expected = std::max(expected, std::abs(value));
      EXPECT_EQ(largest.item(), expected);
    }
  const Tensor low = of<float>({-2, 1}), kept = of<float>({-3});
  run(AbsMax{.x = low, .out = kept, .accumulate = true});
  EXPECT_EQ(kept.item(), 3) << "of what was there and of x";
  run(AbsMax{.x = of<float>({-5}), .out = kept, .accumulate = true});
  EXPECT_EQ(kept.item(), 5);
  const Tensor bad = of<float>({1, std::nanf(""), 3}), largest = empty({1}, DType::f32);
  run(AbsMax{.x = bad, .out = largest});
  EXPECT_TRUE(std::isnan(largest.item()));
  reference::run(AbsMax{.x = bad, .out = largest});
  EXPECT_TRUE(std::isnan(largest.item()));
  run(AbsMax{.x = low, .out = largest, .accumulate = true});
  EXPECT_TRUE(std::isnan(largest.item())) << "and stays";
}

TEST_F(Rounding, at_random_goes_to_the_two_neighbours_and_is_right_on_average) {
  constexpr int64_t kDraws = 100000;
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const float value : {1.001f, -0.3337f, 3e-6f, 1234.56f}) {
      const Tensor x = of<float>(std::vector<float>(kDraws, value)), y = empty({kDraws}, dtype);
      run(RoundStochastic{.x = x, .y = y, .key = 11});
      const std::vector<double> values = y.to_vector<double>();
      const auto [low, high] = std::minmax_element(values.begin(), values.end());
      double sum = 0;
      for (const double each : values) {
        EXPECT_TRUE(each == *low || each == *high);
        sum += each;
      }
      ASSERT_LT(*low, *high);
      EXPECT_LE(*low, value);
      EXPECT_GE(*high, value);
      // Five standard deviations of the mean of so many draws, each at most a step wide.
      EXPECT_NEAR(sum / kDraws, value, 5 * 0.5 * (*high - *low) / std::sqrt(double{kDraws})) << name_of(dtype);
    }
}

TEST_F(Rounding, at_random_keeps_what_fits_and_depends_on_key_and_index_alone) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Tensor exact = converted(*memory_, random({5000}, DType::f32, 4), dtype), y = empty({5000}, dtype);
    run(RoundStochastic{.x = converted(*memory_, exact, DType::f32), .y = y, .key = 1});
    expect_same_bits(y, exact);
    const Tensor x = random({5000}, DType::f32, 5), whole = empty({5000}, dtype), parts = empty({5000}, dtype);
    run(RoundStochastic{.x = x, .y = whole, .key = 2, .first = 100});
    for (const auto& [begin, end] : {std::pair{0, 3}, std::pair{3, 1001}, std::pair{1001, 5000}})
      reference::run(
          RoundStochastic{.x = x.flat(begin, end), .y = parts.flat(begin, end), .key = 2, .first = 100 + begin});
    expect_same_bits(parts, whole);
    const Tensor other = empty({5000}, dtype);
    run(RoundStochastic{.x = x, .y = other, .key = 3, .first = 100});
    EXPECT_GT(max_abs_difference(other, whole), 0);
  }
}

TEST_F(Rounding, at_random_stays_finite_at_the_end_of_the_range) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Tensor x = of<float>(std::vector<float>(1000, 3.4e38f)), y = empty({1000}, dtype);
    run(RoundStochastic{.x = x, .y = y, .key = 1});
    for (const double value : y.to_vector<double>()) EXPECT_TRUE(std::isfinite(value));
    const Tensor bad = of<float>({infinity, -infinity}), kept = empty({2}, dtype);
    run(RoundStochastic{.x = bad, .y = kept, .key = 1});
    EXPECT_EQ(kept.to_vector<double>()[0], double{infinity});
    EXPECT_EQ(kept.to_vector<double>()[1], -double{infinity});
  }
}

class Mxfp8 : public KernelTest {
 protected:
  /// x as it comes back, the same from both backends.
  Tensor rounded(const Tensor& x) {
    const Shape blocks{ceil_div(x.numel(), kMxBlock)};
    const EncodeMxfp8 op{.x = x, .codes = empty({x.numel()}, DType::u8), .scales = empty(blocks, DType::u8)};
    const EncodeMxfp8 expected{.x = x, .codes = empty({x.numel()}, DType::u8), .scales = empty(blocks, DType::u8)};
    run(op);
    reference::run(expected);
    expect_same_bits(op.codes, expected.codes);
    expect_same_bits(op.scales, expected.scales);
    const Tensor y = empty(x.shape(), x.dtype()), other = empty(x.shape(), x.dtype());
    run(DecodeMxfp8{.codes = op.codes, .scales = op.scales, .x = y});
    reference::run(DecodeMxfp8{.codes = op.codes, .scales = op.scales, .x = other});
    expect_same_bits(y, other);
    return y;
  }
};

TEST_F(Mxfp8, every_value_of_e4m3_comes_back_at_every_scale) {
  for (const int exponent : {-110, -20, 0, 3, 110}) {
    SCOPED_TRACE(exponent);
    std::vector<float> x;
    for (const auto& [value, even] : kFormats[0].values()) {
      if (std::ssize(x) % kMxBlock == 0) x.push_back(static_cast<float>(std::ldexp(448, exponent)));  // sets the scale
      x.push_back(static_cast<float>(std::ldexp(value, exponent)));
    }
    EXPECT_EQ(rounded(of<float>(x)).to_vector<float>(), x);
  }
}

TEST_F(Mxfp8, values_move_by_a_sixteenth_at_most_or_by_half_a_step_of_the_block) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64})
    for (const int64_t n : {1, 31, 32, 33, 1000}) {
      SCOPED_TRACE(fmt::format("{} of {}", n, name_of(dtype)));
      const Tensor values = random({n}, dtype, 5);
      const auto x = values.to_vector<double>(), y = rounded(values).to_vector<double>();
      for (size_t i = 0; i < x.size(); ++i) {
        const size_t begin = i - i % kMxBlock, end = std::min(x.size(), begin + kMxBlock);
        double largest = 0;
        for (size_t k = begin; k < end; ++k) largest = std::max(largest, std::abs(x[k]));
        EXPECT_LE(std::abs(y[i] - x[i]), std::max(std::abs(x[i]) / 16, largest / 224 * 0x1p-10)) << i;
      }
    }
}

TEST_F(Mxfp8, what_is_not_finite_spoils_its_block_alone_and_what_is_finite_stays_so) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    SCOPED_TRACE(name_of(dtype));
    const float most = dtype == DType::f16 ? 65504.0f : dtype == DType::bf16 ? 0x1.FEp127f : 0x1.FFFFFEp127f;
    std::vector<float> x(96, 0.5f);
    x[40] = std::numeric_limits<float>::infinity(), x[70] = -most;
    const auto y = rounded(converted(*memory_, of<float>(x), dtype)).to_vector<double>();
    for (size_t i = 0; i < 96; ++i) EXPECT_EQ(std::isnan(y[i]), 32 <= i && i < 64) << i;
    EXPECT_NEAR(y[70] / -double{most}, 1, 1.0 / 16);
  }
}

}  // namespace
}  // namespace nought::rounding_test
