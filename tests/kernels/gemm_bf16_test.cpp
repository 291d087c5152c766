// Products by AVX512-BF16 dot products and by tiles: every layout and odd size against f64, and the same bits in any
// company.
#include "nought/kernels/cpu/gemm_bf16.h"

#include "support/product_test.h"
#include "support/size.h"

#include "nought/base/error.h"

namespace nought::gemm_bf16_test {
namespace {

test::Multiply by(cpu::TileUnit unit) {
  return [unit](const cpu::Product& product) { cpu::multiply_pairs(product, unit); };
}

TEST(GemmBf16, without_the_instructions_a_product_fails) {
  const test::ProductCase each{.sizes = {1, 1, 1}};
  if (test::tile_units().empty()) {
    EXPECT_THROW(test::product_of(each, test::ProductFactors<bf16_t>(each.sizes), by(cpu::TileUnit::none)),
                 DeviceError);
  } else {
    test::expect_exact_within_rounding<bf16_t>(each, by(cpu::TileUnit::none));
  }
}

TEST(GemmBf16, tiles_that_the_cpu_lacks_are_refused) {
  if (cpu::may_use_amx()) {
    EXPECT_NO_THROW(const cpu::TileSession session(cpu::TileUnit::amx));
  } else {
    EXPECT_THROW(const cpu::TileSession session(cpu::TileUnit::amx), DeviceError);
  }
}

TEST(GemmBf16, every_layout_of_odd_sizes_is_exact_within_rounding) {
  for (const cpu::TileUnit unit : test::tile_units()) test::expect_every_layout_exact<bf16_t>(by(unit));
}

NOUGHT_SIZE(medium);
TEST(GemmBf16, sums_cross_the_chunks_of_k_and_the_blocks_of_c) {
  for (const cpu::TileUnit unit : test::tile_units()) test::expect_large_ones_exact<bf16_t>(by(unit));
}

NOUGHT_SIZE(medium);
TEST(GemmBf16, an_element_has_the_same_bits_in_a_product_of_any_size) {
  for (const cpu::TileUnit unit : test::tile_units()) test::expect_same_bits_in_any_company<bf16_t>(by(unit));
}

}  // namespace
}  // namespace nought::gemm_bf16_test
