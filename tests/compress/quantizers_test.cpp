// Quantizers of training against DeepSpeed's values.
#include "nought/compress/quantizers.h"

#include <cmath>

#include "support/golden_root.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"
#include "nought/base/json.h"

namespace nought::quantizers_test {
namespace {

using Values = std::vector<float>;

Values quantized(const Quantizer& quantizer, int64_t groups, const Values& x, const Values& dither = {}) {
  Values y(x.size());
  quantize_groups(quantizer, groups, x, y, dither);
  return y;
}

TEST(Quantizers, values_are_those_of_deepspeed_to_the_bit) {
  const Json golden = read_json_file(test::golden_root() + "/scale/compression.json");
  for (const Json& each : golden.at("weight_quantizers")) {
    const bool symmetric = each.at("quantization_type") == "symmetric";
    const Quantizer quantizer{symmetric ? QuantizerScale::symmetric : QuantizerScale::asymmetric,
                              each.at("bits").get<int>()};
    EXPECT_EQ(quantized(quantizer, each.at("quantize_groups").get<int64_t>(), each.at("weight").get<Values>()),
              each.at("expect").get<Values>())
        << each.at("bits") << " bits, " << each.at("quantization_type");
  }
}

TEST(Quantizers, a_group_of_zeros_stays_zeros) {
  const Values zeros(6, 0.0f);
  for (const int bits : {1, 2, 4, 8})
    for (const QuantizerScale scale : {QuantizerScale::symmetric, QuantizerScale::asymmetric})
      EXPECT_EQ(quantized({scale, bits}, 2, zeros), zeros) << bits << " bits, " << name_of(scale);
}

TEST(Quantizers, groups_do_not_see_each_other) {
  const Values x{1, -0.5f, 100, 50};
  const Values y = quantized({QuantizerScale::symmetric, 4}, 2, x);
  EXPECT_EQ(y[0], 0.875f) << "the largest value is beyond the last code";
  EXPECT_EQ(y[1], -0.5f);
  EXPECT_THROW(quantized({}, 3, x), Error);
}

TEST(Quantizers, stochastic_rounding_moves_a_value_to_either_neighbour) {
  const Values x{1, 0.3f};  // 0.3 is 2.4 steps of 1/8
  EXPECT_EQ(quantized({QuantizerScale::symmetric, 4}, 1, x, {0, -0.4f})[1], 0.25f);
  EXPECT_EQ(quantized({QuantizerScale::symmetric, 4}, 1, x, {0, 0.4f})[1], 0.375f);
}

TEST(Quantizers, long_ternary_groups_lose_nothing) {
  Values x(100'000);
  for (size_t i = 0; i < x.size(); ++i) x[i] = i % 2 == 0 ? 1.0f : -0.01f;
  const Values y = quantized({QuantizerScale::symmetric, 2}, 1, x);
  EXPECT_FLOAT_EQ(y[0], 1);
  EXPECT_EQ(y[1], 0);
}

TEST(Quantizers, a_static_range_moves_by_a_twentieth) {
  EXPECT_EQ(moved_range({}, {-2, 4}), (ValueRange{-2, 4}));
  const ValueRange moved = moved_range({-2, 4}, {0, 6});
  EXPECT_FLOAT_EQ(moved.least, -1.9f);
  EXPECT_FLOAT_EQ(moved.greatest, 4.1f);
}

}  // namespace
}  // namespace nought::quantizers_test
