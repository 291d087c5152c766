// Products of few rows, of every dtype and on every instruction set of this machine, against f64; a row among few has
// the bits that it has alone, and among many.
#include "nought/kernels/cpu/few_rows.h"

#include <algorithm>
#include <utility>

#include "support/product_test.h"
#include "support/size.h"

#include "nought/kernels/cpu/gemm_bf16.h"

namespace nought::few_rows_test {
namespace {

template <class T>
void expect_few_rows_exact() {
  for (const int64_t m : {1, 2, 5, 15})
    for (const int64_t n : {1, 7, 67})
      for (const int64_t k : {1, 5, 31, 129}) test::expect_every_kind_exact<T>({m, n, k}, cpu::multiply_few);
  test::expect_every_kind_exact<T>({1, 4200, 5}, cpu::multiply_few);  // past the columns and the elements of k that are
  test::expect_every_kind_exact<T>({2, 300, 2100}, cpu::multiply_few);  // taken at a time
}

NOUGHT_SIZE(medium);
TEST(FewRows, every_layout_of_odd_sizes_is_exact_within_rounding) {
  test::for_each_instruction_set([] {
    expect_few_rows_exact<float>();
    expect_few_rows_exact<bf16_t>();
    expect_few_rows_exact<f16_t>();
  });
}

template <class T>
void expect_same_bits_alone() {
  const test::ProductFactors<T> factors({13, 4200, 100});
  for (int layout = 0; layout < 4; ++layout) {
    test::ProductCase each{.sizes = factors.sizes, .transpose_a = (layout & 1) != 0, .transpose_b = (layout & 2) != 0};
    const std::vector<float> all = test::product_of(each, factors, cpu::multiply_few);
    each.sizes.m = 1, each.sizes.n = 70;
    const std::vector<float> first = test::product_of(each, factors, cpu::multiply_few);
    for (size_t j = 0; j < 70; ++j) ASSERT_EQ(first[j], all[j]) << j;
  }
}

NOUGHT_SIZE(medium);
TEST(FewRows, an_element_has_the_same_bits_alone_and_among_others) {
  test::for_each_instruction_set([] {
    expect_same_bits_alone<float>();
    expect_same_bits_alone<bf16_t>();
  });
}

/// The kernel of many rows that a process of this instruction set takes.
template <class T>
void multiply_many(const cpu::Product& product) {
  const bool vectors_of_units = hwy::SupportedTargets() == HWY_AVX3;
  if (std::is_same_v<T, bf16_t> && has_bf16_units() && vectors_of_units)
    return cpu::multiply_pairs(product, cpu::TileUnit::none);
  cpu::multiply_floats(product);
}

/// Rows among few have the bits that they have among many, past the chunks of k and in every option.
template <class T>
void expect_bits_of_many(int64_t n, int64_t k) {
  const test::ProductFactors<T> factors({19, n, k});
  for (int kind = 0; kind < 32; ++kind) {
    test::ProductCase each{.sizes = factors.sizes,
                           .output = (kind & 1) != 0 ? dtype_of_v<T> : DType::f32,
                           .transpose_a = (kind & 2) != 0,
                           .transpose_b = (kind & 4) != 0,
                           .accumulate = (kind & 8) != 0,
                           .bias = (kind & 16) != 0};
    const std::vector<float> many = test::product_of(each, factors, multiply_many<T>);
    for (const int64_t m : {1, 3, 4, 15}) {
      each.sizes.m = m;
      std::vector<float> few = test::product_of(each, factors, cpu::multiply_few);
      few.resize(static_cast<size_t>(m * n));
      ASSERT_TRUE(std::equal(few.begin(), few.end(), many.begin())) << kind << ", " << m << " rows";
    }
  }
}

NOUGHT_SIZE(medium);
TEST(FewRows, have_the_bits_of_many_rows) {
  const test::ThreadCount guard(1);
  test::for_each_instruction_set([] {
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{70, 45}, {33, 1031}, {300, 700}, {31, 2080}}) {
      expect_bits_of_many<float>(n, k);
      expect_bits_of_many<bf16_t>(n, k);
      expect_bits_of_many<f16_t>(n, k);
    }
  });
}

}  // namespace
}  // namespace nought::few_rows_test
