// Products by fp32 multiply-adds, of every dtype that they are stored in and on every instruction set of this machine:
// every layout and odd size against f64, and the same bits in any company.
#include "support/product_test.h"
#include "support/size.h"

namespace nought::gemm_float_test {
namespace {

NOUGHT_SIZE(medium);
TEST(GemmFloat, every_layout_of_odd_sizes_is_exact_within_rounding) {
  test::for_each_instruction_set([] {
    test::expect_every_layout_exact<float>(cpu::multiply_floats);
    test::expect_every_layout_exact<bf16_t>(cpu::multiply_floats);
    test::expect_every_layout_exact<f16_t>(cpu::multiply_floats);
  });
}

NOUGHT_SIZE(medium);
TEST(GemmFloat, sums_cross_the_chunks_of_k_and_the_blocks_of_c) {
  test::for_each_instruction_set([] {
    test::expect_large_ones_exact<float>(cpu::multiply_floats);
    test::expect_large_ones_exact<bf16_t>(cpu::multiply_floats);
  });
  test::expect_large_ones_exact<f16_t>(cpu::multiply_floats);
}

NOUGHT_SIZE(medium);
TEST(GemmFloat, an_element_has_the_same_bits_in_a_product_of_any_size) {
  test::for_each_instruction_set([] {
    test::expect_same_bits_in_any_company<float>(cpu::multiply_floats);
    test::expect_same_bits_in_any_company<bf16_t>(cpu::multiply_floats);
  });
}

}  // namespace
}  // namespace nought::gemm_float_test
