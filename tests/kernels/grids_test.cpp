// Values on grids of few bits: weights have the values of the codes that folders get, inputs those of their row's
// range.
#include "nought/kernels/ops/grids.h"

#include "support/kernel_test.h"

namespace nought::test::grids_test {
namespace {

class Grids : public KernelTest {
 protected:
  Tensor rounded(RoundToGrid op, const Tensor& x) {
    const Tensor y = empty(x.shape(), x.dtype());
    op.x = x, op.y = y;
    run(op);
    return y;
  }
  Tensor ranges_of(const Tensor& x) {
    const Tensor ranges = empty({x.rows(), 2}, DType::f32), expected = empty({x.rows(), 2}, DType::f32);
    run(RowRanges{.x = x, .ranges = ranges});
    reference::run(RowRanges{.x = x, .ranges = expected});
    expect_same_bits(ranges, expected);
    return ranges;
  }
  static std::vector<RoundToGrid> weight_grids() {
    return {{.x = {}, .y = {}, .group_size = 32, .bits = 4},
            {.x = {}, .y = {}, .group_size = 7, .bits = 4, .symmetric = false},
            {.x = {}, .y = {}, .group_size = 97, .bits = 8},
            {.x = {}, .y = {}, .group_size = 16, .square = true, .bits = 8, .codes = CodeTable::e4m3},
            {.x = {}, .y = {}, .group_size = 32, .bits = 4, .codes = CodeTable::e2m1}};
  }
};

TEST_F(Grids, weights_have_the_values_of_the_codes_of_their_group) {
  for_each_instruction_set([&] {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64})
      for (const RoundToGrid& each : weight_grids()) {
        SCOPED_TRACE(fmt::format("{} in groups of {}, {} bits", name_of(each.codes), each.group_size, each.bits));
        const Tensor x = random({21, 97}, dtype, 1, 0.05), y = rounded(each, x);
        const std::vector<float> before = x.to_vector<float>(), after = y.to_vector<float>();
        const int64_t tall = each.square ? each.group_size : 1;
        for (int64_t top = 0; top < 21; top += tall)
          for (int64_t left = 0; left < 97; left += each.group_size) {
            std::vector<float> group;
            std::vector<size_t> places;
            for (int64_t row = top; row < std::min<int64_t>(top + tall, 21); ++row)
              for (int64_t i = left; i < std::min<int64_t>(left + each.group_size, 97); ++i)
                places.push_back(static_cast<size_t>(row * 97 + i)), group.push_back(before[places.back()]);
            const RoundingGrid grid = grid_of(group, each.rule());
            for (size_t i = 0; i < group.size(); ++i) {
              const Tensor value = converted(*memory_, of<float>({grid.rounded(group[i])}), dtype);
              ASSERT_EQ(std::signbit(after[places[i]]), std::signbit(value.to_vector<float>()[0])) << places[i];
              ASSERT_EQ(after[places[i]], value.to_vector<float>()[0]) << places[i];
            }
          }
      }
  });
}

TEST_F(Grids, a_group_that_is_not_finite_becomes_nan_and_no_other_does) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    for (RoundToGrid each : weight_grids()) {
      if (each.square) continue;
      each.group_size = 32;
      const Tensor x = random({2, 64}, DType::f32, 3);
      x.data<float>()[40] = bad;
      const std::vector<float> y = rounded(each, x).to_vector<float>();
      for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), 32 <= i && i < 64) << i;
    }
}

TEST_F(Grids, a_group_of_zeros_stays_zeros) {
  for (const RoundToGrid& each : weight_grids()) {
    const Tensor x = empty({3, 64}, DType::f32);
    std::ranges::fill(x.span<float>(), -0.0f);
    const Tensor y = rounded(each, x);
    for (const float value : y.to_vector<float>()) EXPECT_EQ(value, 0);
  }
}

TEST_F(Grids, rows_are_rounded_by_themselves_and_as_the_reference_does) {
  for_each_instruction_set([&] {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64})
      for (const RowGrid grid : {RowGrid::affine, RowGrid::symmetric, RowGrid::asymmetric, RowGrid::e4m3})
        for (const int bits : {4, 8})
          for (const int64_t width : {1, 5, 64, 99}) {
            const Tensor x = random({9, width}, dtype, 5, 3), ranges = ranges_of(x);
            const Tensor y = empty(x.shape(), dtype), expected = empty(x.shape(), dtype);
            run(RoundRows{.x = x, .ranges = ranges, .y = y, .grid = grid, .bits = bits});
            reference::run(RoundRows{.x = x, .ranges = ranges, .y = expected, .grid = grid, .bits = bits});
            expect_same_bits(y, expected);
          }
  });
}

/// torchao's int8 per token: no value moves by more than half a step, and 0 stays 0.
TEST_F(Grids, affine_rows_reach_from_the_least_value_to_the_greatest) {
  const Tensor x = of<float>({0, -1.5f, 2.25f, 0.3f, 7, 0, 7, 7.5f, 8, 9, 1, 0}).reshape({2, 6}), ranges = ranges_of(x);
  const Tensor y = empty({2, 6}, DType::f32);
  run(RoundRows{.x = x, .ranges = ranges, .y = y});
  const std::vector<float> before = x.to_vector<float>(), after = y.to_vector<float>();
  for (size_t i = 0; i < 12; ++i) {
    const double step = i < 6 ? 8.5 / 255 : 9.0 / 255;
    EXPECT_LE(std::abs(after[i] - before[i]), step / 2 * 1.001) << i;
    EXPECT_NEAR(after[i] / step, std::round(after[i] / step), 1e-3) << i;
  }
  EXPECT_EQ(after[0], 0);
  EXPECT_EQ(after[11], 0);
}

TEST_F(Grids, a_row_that_is_not_finite_becomes_nan) {
  const Tensor x = random({3, 20}, DType::bf16, 7), y = empty({3, 20}, DType::bf16);
  x.data<bf16_t>()[25] = bf16_t(std::numeric_limits<float>::infinity());
  const Tensor ranges = ranges_of(x);
  run(RoundRows{.x = x, .ranges = ranges, .y = y});
  const std::vector<float> values = y.to_vector<float>();
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(std::isnan(values[i]), 20 <= i && i < 40) << i;
}

TEST_F(Grids, masks_keep_what_their_bits_say) {
  const Tensor bits = of<uint8_t>({0b10110010, 0b01000111, 0xFF});
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor x = random({13}, dtype, 9), y = empty({13}, dtype);
    if (dtype == DType::f32) x.data<float>()[4] = std::numeric_limits<float>::quiet_NaN();  // is not kept
    run(KeepMasked{.bits = bits, .x = x, .y = y, .first = 2});
    const std::vector<float> before = x.to_vector<float>(), after = y.to_vector<float>();
    for (size_t i = 0; i < 13; ++i) {
      const size_t at = i + 2;
      const bool kept = (bits.data<uint8_t>()[at / 8] >> (at % 8) & 1) != 0;
      if (!kept || !std::isnan(before[i])) {
        EXPECT_EQ(after[i], kept ? before[i] : 0) << i;
      }
    }
  }
  const Tensor x = random({23}, DType::f32, 9);
  EXPECT_THROW(run(KeepMasked{.bits = bits, .x = x, .y = x, .first = 2}), ShapeError);
}

}  // namespace
}  // namespace nought::test::grids_test
