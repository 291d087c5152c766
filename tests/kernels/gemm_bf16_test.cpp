// Products by AVX512-BF16 dot products and by tiles: every layout and odd size against f64, and the same bits in any
// company.
#include "nought/kernels/cpu/gemm_bf16.h"

#include <cmath>
#include <vector>

#include "support/kernel_test.h"
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought {
namespace {

struct Case {
  MatMulSizes sizes;
  DType output = DType::f32;
  bool transpose_a = false, transpose_b = false, accumulate = false, bias = false;
};

/// The operands lie in rows that are longer than they are, as views into wider tensors do.
struct Operands {
  static constexpr int64_t kGap = 3;

  explicit Operands(const Case& each)
      : lda((each.transpose_a ? each.sizes.m : each.sizes.k) + kGap),
        ldb((each.transpose_b ? each.sizes.k : each.sizes.n) + kGap),
        a(test::random_bf16((each.transpose_a ? each.sizes.k : each.sizes.m) * lda, 1)),
        b(test::random_bf16((each.transpose_b ? each.sizes.n : each.sizes.k) * ldb, 2)),
        bias(test::random_bf16(each.sizes.n, 3)),
        before(test::random_bf16(each.sizes.m * each.sizes.n, 4)) {}

  int64_t lda, ldb;
  std::vector<bf16_t> a, b, bias, before;
};

/// All of C, widened.
std::vector<float> multiply(const Case& each, const Operands& operands, cpu::TileUnit unit) {
  std::vector<bf16_t> rounded = operands.before;
  std::vector<float> c(operands.before.begin(), operands.before.end());
  cpu::multiply({.sizes = each.sizes,
                 .a = operands.a.data(),
                 .b = operands.b.data(),
                 .bias = each.bias ? operands.bias.data() : nullptr,
                 .c = each.output == DType::f32 ? static_cast<void*>(c.data()) : rounded.data(),
                 .lda = operands.lda,
                 .ldb = operands.ldb,
                 .ldc = each.sizes.n,
                 .output = each.output,
                 .transpose_a = each.transpose_a,
                 .transpose_b = each.transpose_b,
                 .accumulate = each.accumulate},
                unit);
  return each.output == DType::f32 ? c : std::vector<float>(rounded.begin(), rounded.end());
}

double exact_element(const Case& each, const Operands& operands, int64_t i, int64_t j) {
  double sum = each.accumulate ? operands.before[static_cast<size_t>(i * each.sizes.n + j)] : 0.0;
  if (each.bias) sum += operands.bias[static_cast<size_t>(j)];
  for (int64_t p = 0; p < each.sizes.k; ++p) {
    const int64_t a = each.transpose_a ? p * operands.lda + i : i * operands.lda + p;
    const int64_t b = each.transpose_b ? j * operands.ldb + p : p * operands.ldb + j;
    sum += static_cast<double>(operands.a[static_cast<size_t>(a)]) * operands.b[static_cast<size_t>(b)];
  }
  return sum;
}

void expect_exact_within_rounding(const Case& each, cpu::TileUnit unit) {
  SCOPED_TRACE(fmt::format("{} x {} x {}, output {}, transposed {} {}, accumulate {}, bias {}, unit {}", each.sizes.m,
                           each.sizes.n, each.sizes.k, name_of(each.output), each.transpose_a, each.transpose_b,
                           each.accumulate, each.bias, static_cast<int>(unit)));
  const Operands operands(each);
  const std::vector<float> c = multiply(each, operands, unit);
  const double root = std::sqrt(static_cast<double>(each.sizes.k));
  double worst = 0;
  for (int64_t i = 0; i < each.sizes.m; ++i)
    for (int64_t j = 0; j < each.sizes.n; ++j) {
      const double exact = exact_element(each, operands, i, j);
      const double error = std::abs(c[static_cast<size_t>(i * each.sizes.n + j)] - exact);
      worst = std::max(worst, error / (1e-5 * root + (each.output == DType::f32 ? 0 : std::abs(exact) / 256)));
    }
  EXPECT_LE(worst, 1.0);
}

TEST(GemmBf16, without_the_instructions_a_product_fails) {
  const Case each{.sizes = {1, 1, 1}};
  if (test::tile_units().empty()) {
    EXPECT_THROW(multiply(each, Operands(each), cpu::TileUnit::none), DeviceError);
  } else {
    expect_exact_within_rounding(each, cpu::TileUnit::none);
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
  for (const cpu::TileUnit unit : test::tile_units())
    for (const int64_t m : {1, 7, 16, 33})
      for (const int64_t n : {1, 16, 47, 200})
        for (const int64_t k : {1, 2, 31, 64, 129})
          for (int kind = 0; kind < 16; ++kind)
            expect_exact_within_rounding({.sizes = {m, n, k},
                                          .output = (kind & 1) != 0 ? DType::bf16 : DType::f32,
                                          .transpose_a = (kind & 2) != 0,
                                          .transpose_b = (kind & 4) != 0,
                                          .accumulate = (kind & 8) != 0,
                                          .bias = (kind + m) % 2 == 0},
                                         unit);
}

TEST(GemmBf16, sums_cross_the_chunks_of_k_and_the_blocks_of_c) {
  for (const cpu::TileUnit unit : test::tile_units())
    for (const bool transposed : {false, true})
      for (const DType output : {DType::f32, DType::bf16}) {
        expect_exact_within_rounding(
            {.sizes = {19, 50, 2051}, .output = output, .transpose_a = transposed, .bias = true}, unit);
        expect_exact_within_rounding(
            {.sizes = {19, 50, 1031}, .output = output, .transpose_a = transposed, .accumulate = true}, unit);
        expect_exact_within_rounding({.sizes = {530, 400, 34}, .output = output, .transpose_b = transposed}, unit);
      }
}

TEST(GemmBf16, an_element_has_the_same_bits_in_a_product_of_any_size) {
  for (const cpu::TileUnit unit : test::tile_units())
    for (const bool transpose_a : {false, true}) {
      const Case whole{.sizes = {600, 500, 1100}, .transpose_a = transpose_a};
      const Operands operands(whole);
      const std::vector<float> c = multiply(whole, operands, unit);
      Case part = whole;
      part.sizes.m = 21, part.sizes.n = 130;
      const std::vector<float> corner =
          multiply(part, operands, unit);  // the leading dimensions stay those of the whole
      for (int64_t i = 0; i < part.sizes.m; ++i)
        for (int64_t j = 0; j < part.sizes.n; ++j)
          ASSERT_EQ(corner[static_cast<size_t>(i * part.sizes.n + j)], c[static_cast<size_t>(i * whole.sizes.n + j)]);
    }
}

}  // namespace
}  // namespace nought
