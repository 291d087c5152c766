// The tiles of attention on AMX or its twin: any height and width, factors by rows or in pairs, sums added to.
#include "nought/kernels/cpu/dot_tiles.h"

#include <cmath>
#include <vector>

#include "support/kernel_test.h"
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::dot_tiles_test {
namespace {

/// The left factor by rows, or as the transpose of a tile [k, 64].
void expect_product(cpu::TileUnit unit, int64_t rows, int64_t columns, int64_t k, bool transposed, bool accumulate) {
  SCOPED_TRACE(fmt::format("{} x {} x {}, transposed {}, accumulate {}, unit {}", rows, columns, k, transposed,
                           accumulate, static_cast<int>(unit)));
  const int64_t stride = 64, packed_k = k + 3;
  const std::vector<bf16_t> a = test::random_values<bf16_t>((transposed ? k : rows) * stride, 1);
  const std::vector<bf16_t> b = test::random_values<bf16_t>(packed_k * columns, 2);
  std::vector<bf16_t> right(static_cast<size_t>(cpu::packed_tile(packed_k, columns)));
  std::vector<bf16_t> left(static_cast<size_t>(cpu::packed_tile(k, stride)));
  cpu::pack_rows(b.data(), columns, packed_k, columns, cpu::kDotPanel, right.data());
  cpu::LeftFactor factor{a.data(), stride, 2};
  if (transposed) {
    cpu::pack_rows(a.data(), stride, k, rows, stride, left.data());
    factor = {left.data(), 2, 2 * stride};
  }
  const int64_t wide = columns + 5;
  std::vector<float> c(static_cast<size_t>(rows * wide), 0.5f);
  cpu::multiply_tiles(cpu::TileSession(unit), factor, {right.data(), cpu::packed_panel(packed_k, cpu::kDotPanel)}, k,
                      {c.data(), wide}, rows, columns, accumulate);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < wide; ++j) {
      double exact = accumulate || j >= columns ? 0.5 : 0;  // what is beside the tile stays as it is
      for (int64_t p = 0; p < k && j < columns; ++p)
        exact += static_cast<double>(a[static_cast<size_t>(transposed ? p * stride + i : i * stride + p)]) *
                 b[static_cast<size_t>(p * columns + j)];
      EXPECT_NEAR(c[static_cast<size_t>(i * wide + j)], exact, 1e-5 * std::sqrt(static_cast<double>(k)));
    }
}

TEST(DotTiles, without_the_instructions_tiles_are_refused) {
  if (has_bf16_units()) {
    EXPECT_NO_THROW(cpu::multiply_tiles(cpu::TileSession(cpu::TileUnit::emulated), {}, {}, 0, {}, 0, 0, false));
    return;
  }
  EXPECT_THROW(cpu::multiply_tiles(cpu::TileSession(cpu::TileUnit::emulated), {}, {}, 0, {}, 0, 0, false), DeviceError);
}

TEST(DotTiles, products_are_exact_within_rounding) {
  for (const cpu::TileUnit unit : test::tile_units()) {
    if (unit == cpu::TileUnit::none) continue;
    for (const int64_t rows : {1, 3, 4, 7, 40, 64})
      for (const int64_t columns : {10, 16, 40, 64, 80, 130})
        for (const int64_t k : {1, 2, 33, 64})
          for (const bool transposed : {false, true}) expect_product(unit, rows, columns, k, transposed, rows % 2 == 0);
  }
}

}  // namespace
}  // namespace nought::dot_tiles_test
