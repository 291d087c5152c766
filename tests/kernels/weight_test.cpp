// Weights of 8-bit codes: what a block holds, and what the operations that take a weight make of one.
#include "nought/kernels/weight.h"

#include "support/kernel_test.h"
#include "support/message_of.h"
#include "support/size.h"
#include <gmock/gmock.h>

#include "nought/kernels/arguments.h"
#include "nought/kernels/check.h"
#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/cpu/scratch.h"
#include "nought/kernels/rounding.h"
#include "nought/kernels/work.h"

namespace nought::weight_test {
namespace {

using namespace test;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Weights : public KernelTest {
 protected:
  Weight room_for(Shape shape) { return {empty(shape, DType::i8), empty(scales_shape(shape), DType::f16)}; }
  Weight quantized(const Tensor& x) {
    const Weight weight = room_for(x.shape());
    run(QuantizeBlocks{.x = x, .codes = weight.values, .scales = weight.scales});
    return weight;
  }
  Tensor dequantized(const Weight& weight, DType dtype = DType::f32) {
    const Tensor x = empty(weight.shape(), dtype);
    run(DequantizeBlocks{.weight = weight, .x = x});
    return x;
  }
  /// The scale and the codes of one block.
  std::pair<float, std::vector<int>> block_of(std::vector<float> values) {
    values.resize(kCodeBlock);
    const Weight weight = quantized(of<float>(values));
    return {weight.scales.data<f16_t>()[0], weight.values.to_vector<int>()};
  }
};

// --- views ---

TEST_F(Weights, views_of_codes_take_their_scales_with_them) {
  const Weight weight = quantized(random({6, 64}, DType::f32, 1));
  const Weight rows = weight.slice(2, 4);
  EXPECT_EQ(rows.shape(), (Shape{2, 64}));
  EXPECT_EQ(rows.scales.shape(), (Shape{2, 2}));
  EXPECT_EQ(rows.scales.raw(), weight.scales.flat(4, 5).raw());
  EXPECT_EQ(weight.reshape({2, 3, 64}).scales.shape(), (Shape{2, 3, 2}));
  EXPECT_EQ(weight.str(), "i8[6, 64] with scales f16[6, 2]");
  const Tensor dense = random({6, 4}, DType::f32, 2);
  EXPECT_FALSE(Weight(dense).is_quantized());
  EXPECT_EQ(Weight(dense).slice(2, 4).values.raw(), dense.slice(2, 4).raw());
  EXPECT_EQ(Weight(dense).reshape({4, 6}).shape(), (Shape{4, 6}));
  EXPECT_EQ(Weight(dense).str(), "f32[6, 4]");
  EXPECT_FALSE(Weight().defined() || Weight().is_quantized());
}

TEST_F(Weights, rows_that_are_no_whole_blocks_are_refused_by_name) {
  EXPECT_THAT(message_of<ShapeError>([&] { scales_shape({4, 40}); }), AllOf(HasSubstr("[4, 40]"), HasSubstr("32")));
  const Tensor a = random({2, 40}, DType::f32, 1), c = empty({2, 3}, DType::f32);
  MatMul op{.a = a, .b = {empty({3, 40}, DType::i8), empty({3, 1}, DType::f16)}, .c = c, .transpose_b = true};
  EXPECT_THAT(message_of<ShapeError>([&] { run(op); }), AllOf(HasSubstr("MatMul: b is i8[3, 40]"), HasSubstr("32")));
  EXPECT_THAT(message_of<ShapeError>([&] {
                run(QuantizeBlocks{.x = a, .codes = empty({2, 40}, DType::i8), .scales = empty({2, 1}, DType::f16)});
              }),
              HasSubstr("QuantizeBlocks: codes is i8[2, 40]"));
  EXPECT_THAT(message_of<ShapeError>([&] {
                run(Embedding{.table = {empty({3, 40}, DType::i8), empty({3, 1}, DType::f16)},
                              .ids = of<int32_t>({1}),
                              .out = empty({1, 40}, DType::f32)});
              }),
              HasSubstr("Embedding: table is i8[3, 40]"));
}

TEST_F(Weights, scales_that_do_not_fit_are_refused_by_name) {
  const Tensor codes = empty({4, 64}, DType::i8), x = empty({4, 64}, DType::f32);
  const auto refusal = [&](const Tensor& scales) {
    return message_of<ShapeError>([&] { run(DequantizeBlocks{.weight = {codes, scales}, .x = x}); });
  };
  EXPECT_THAT(refusal(empty({4, 2}, DType::f32)), AllOf(HasSubstr("scales is f32[4, 2]"), HasSubstr("f16")));
  EXPECT_THAT(refusal(empty({2, 4}, DType::f16)), AllOf(HasSubstr("scales is f16[2, 4]"), HasSubstr("[4, 2]")));
  EXPECT_THAT(refusal({}), HasSubstr("scales is undefined"));
  EXPECT_THROW(run(DequantizeBlocks{.weight = x, .x = x}), ShapeError);
}

// --- blocks ---

TEST_F(Weights, a_block_is_that_of_q8_0) {
  // The largest magnitude is 127 steps, and halves are rounded away from zero.
  const auto [scale, codes] = block_of({-254, 1, -1, 3, 2.9F, 100, 99.01F});
  EXPECT_EQ(scale, 2);
  EXPECT_EQ(std::vector<int>(codes.begin(), codes.begin() + 8), (std::vector<int>{-127, 1, -1, 2, 1, 50, 50, 0}));
  EXPECT_EQ(block_of({}).first, 0) << "zeros";
  EXPECT_EQ(block_of({}).second, std::vector<int>(kCodeBlock));
  EXPECT_EQ(block_of({0.1F}).first, float{f16_t(0.1F / 127)});
}

TEST_F(Weights, blocks_know_only_their_own_values) {
  Tensor x = random({2, 96}, DType::f32, 3);
  const Weight before = quantized(x);
  x.data<float>()[40] = 1000;  // in the second block of the first row
  const Weight after = quantized(x);
  for (int64_t block = 0; block < 6; ++block)
    EXPECT_EQ(float{before.scales.data<f16_t>()[block]} == float{after.scales.data<f16_t>()[block]}, block != 1);
}

TEST_F(Weights, no_value_moves_by_more_than_half_a_scale) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16})
    for (int decade = -9; decade <= 6; ++decade) {
      if (dtype == DType::f16 && decade > 3) continue;
      const Tensor x = random({8, 320}, dtype, 7, std::pow(10.0, decade));
      const Weight weight = quantized(x);
      const auto values = x.to_vector<double>(), codes = weight.values.to_vector<double>(),
                 scales = weight.scales.to_vector<double>();
      for (size_t i = 0; i < values.size(); ++i) {
        const double scale = scales[i / kCodeBlock];
        ASSERT_LE(std::abs(codes[i]), 127);
        ASSERT_LE(std::abs(values[i] - codes[i] * scale), 0.5 * scale * (1 + 1e-6))
            << values[i] << " in " << name_of(dtype);
      }
    }
}

TEST_F(Weights, quantizing_again_changes_no_value) {
  for (int tenths = -90; tenths <= 50; tenths += 2) {  // scales of f16 are subnormal for most of them
    const Tensor once = dequantized(quantized(random({4, 320}, DType::f32, 11, std::pow(10.0, tenths / 10.0))));
    expect_same_bits(dequantized(quantized(once)), once);
  }
}

TEST_F(Weights, what_no_scale_can_hold_shows) {
  const float most = 127.0F * 65504.0F;
  EXPECT_EQ(block_of({most}).first, 65504);
  EXPECT_EQ(block_of({-most}).second[0], -127);
  for (const float bad : {1.01F * most, -1.01F * most, HUGE_VALF, -HUGE_VALF, std::nanf("")}) {
    const Weight weight = quantized(of<float>([&] {
      std::vector<float> values(2 * kCodeBlock, 1.0F);
      values[40] = bad;
      return values;
    }()));
    EXPECT_FALSE(std::isnan(float{weight.scales.data<f16_t>()[0]})) << bad;
    EXPECT_TRUE(std::isnan(float{weight.scales.data<f16_t>()[1]})) << bad;
    EXPECT_TRUE(std::isnan(dequantized(weight).data<float>()[33])) << "every value of the block";
  }
}

TEST_F(Weights, both_backends_make_the_same_blocks_and_values) {
  for_each_instruction_set([&] {
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
      const Tensor x = random({5, 96}, dtype, 3);
      const Weight weight = quantized(x), expected = room_for(x.shape());
      reference::run(QuantizeBlocks{.x = x, .codes = expected.values, .scales = expected.scales});
      expect_same_bits(weight.values, expected.values);
      expect_same_bits(weight.scales, expected.scales);
      const Tensor y = empty(x.shape(), dtype);
      reference::run(DequantizeBlocks{.weight = weight, .x = y});
      expect_same_bits(dequantized(weight, dtype), y);
    }
  });
}

// --- operations that take a weight ---

TEST_F(Weights, a_lookup_decodes_rows) {
  for_each_instruction_set([&] {
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16})
      for (const bool accumulate : {false, true}) {
        const Weight table = quantized(random({31, 96}, DType::f32, 1));
        const Tensor ids = random_ids(*memory_, {100}, 31, 2), out = random({100, 96}, dtype, 3), expected = clone(out);
        run(Embedding{.table = table, .ids = ids, .out = out, .accumulate = accumulate});
        reference::run(Embedding{.table = table, .ids = ids, .out = expected, .accumulate = accumulate});
        expect_same_bits(out, expected);
        if (accumulate) continue;
        reference::run(Embedding{.table = dequantized(table, dtype), .ids = ids, .out = expected});
        expect_same_bits(out, expected);
      }
  });
}

TEST_F(Weights, bytes_and_arguments_are_those_of_codes_and_scales) {
  const Weight weight = room_for({7, 64});
  const Tensor a = empty({3, 64}, DType::bf16), c = empty({3, 7}, DType::bf16);
  const MatMul product{.a = a, .b = weight, .c = c, .transpose_b = true};
  EXPECT_EQ(work_of(product).bytes, 2 * 3 * 64 + 7 * 64 + 2 * 7 * 2 + 2 * 3 * 7);
  EXPECT_EQ(work_of(product).flops, 2 * 3 * 7 * 64);
  EXPECT_EQ(arguments_of(product), "a bf16[3, 64], b i8[7, 64], scales f16[7, 2], c bf16[3, 7], transpose_b");
  const Embedding lookup{.table = weight, .ids = of<int32_t>({1, 5}), .out = empty({2, 64}, DType::bf16)};
  EXPECT_EQ(work_of(lookup).bytes, 2 * (64 + 2 * 2) + 2 * 4 + 2 * 2 * 64) << "of the rows that ids name";
}

class QuantizedProducts : public Weights {
 protected:
  /// A product of random tensors; bit 0 of `options` transposes a, bit 1 b, bit 2 accumulates, bit 3 adds a bias.
  MatMul product(int64_t m, int64_t n, int64_t k, DType inputs, DType output, int options) {
    const bool transpose_a = options & 1, transpose_b = options & 2;
    const Shape b{transpose_b ? n : k, transpose_b ? k : n};
    MatMul op{.a = random(transpose_a ? Shape{k, m} : Shape{m, k}, inputs, 1),
              .b = quantized(random(b, DType::f32, 2)),
              .c = random({m, n}, output, 3),
              .transpose_a = transpose_a,
              .transpose_b = transpose_b,
              .accumulate = (options & 4) != 0};
    if (options & 8) op.bias = random({n}, inputs, 4);
    return op;
  }
  Tensor magnitudes(const Tensor& x) {
    const Tensor y = wide(x);
    for (double& value : y.span<double>()) value = std::abs(value);
    return y;
  }
  /// The f64 product, and the sums of the magnitudes of its terms.
  std::pair<Tensor, Tensor> exact(const MatMul& op) {
    MatMul oracle = op, sizes = op;
    oracle.a = wide(op.a), oracle.c = wide(op.c), oracle.bias = op.bias ? wide(op.bias) : Tensor{};
    sizes.a = magnitudes(op.a), sizes.b = magnitudes(dequantized(op.b)), sizes.c = empty(op.c.shape(), DType::f64);
    sizes.bias = {}, sizes.accumulate = false;
    reference::run(oracle);
    reference::run(sizes);
    return {oracle.c, sizes.c};
  }
  /// The result is the exact one but for fp32 sums and its own rounding. Where bf16 units multiply, values are rounded
  /// to bf16 first, and each term may be off by half a step.
  void expect_agreement(const MatMul& op) {
    SCOPED_TRACE(fmt::format("{}{} x {}{} -> {}{}{}", op.a, op.transpose_a ? "^T" : "", op.b.str(),
                             op.transpose_b ? "^T" : "", op.c, op.accumulate ? " accumulated" : "",
                             op.bias ? " with bias" : ""));
    const auto [expected, terms] = exact(op);
    run(op);
    const bool rounds = op.a.dtype() == DType::bf16 && has_bf16_units();
    const double k = static_cast<double>(op.sizes().k), of_values = rounds ? 0x1p-9 : 0;
    const auto actual = op.c.to_vector<double>();
    const double step = unit_roundoff(op.c.dtype()) * 1.01, noise = 2e-7 * (k + 4);
    for (size_t i = 0; i < actual.size(); ++i) {
      const double exact = expected.data<double>()[i];
      ASSERT_NEAR(actual[i], exact, (of_values + noise) * (1 + terms.data<double>()[i]) + step * std::abs(exact)) << i;
    }
  }
};

struct Dtypes {
  DType inputs, output;
};
constexpr Dtypes kDtypes[] = {{DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32},
                              {DType::f16, DType::f16}, {DType::f16, DType::f32},   {DType::f64, DType::f64}};

NOUGHT_SIZE(medium);
TEST_F(QuantizedProducts, are_those_of_the_values_for_few_rows_and_for_many) {
  size_t turn = 0;
  for (const int64_t m : {1, 2, 3, 4, 7, 15, 16, 17, 40})
    for (const int64_t n : {1, 33, 64, 401})
      for (const int64_t k : {32, 160, 1056}) {
        const auto [inputs, output] = kDtypes[turn++ % std::size(kDtypes)];
        expect_agreement(product(m, n, k, inputs, output, 2 + (turn % 4 << 2)));          // y = x W^T
        expect_agreement(product(m, round_up(n, kCodeBlock), k + 5, inputs, output, 0));  // dx = dy W
      }
}

NOUGHT_SIZE(medium);
TEST_F(QuantizedProducts, take_every_option_in_every_dtype) {
  for (const auto [inputs, output] : kDtypes)
    for (int options = 0; options < 16; ++options)
      for (const int64_t m : {3, 37}) expect_agreement(product(m, 96, 64, inputs, output, options));
}

TEST_F(QuantizedProducts, are_the_same_on_every_instruction_set_of_the_vectors) {
  for_each_instruction_set([&] {
    for (const auto [inputs, output] : kDtypes)
      for (const int64_t m : {1, 6, 20}) expect_agreement(product(m, 70, 224, inputs, output, 2 + 8));
  });
}

TEST_F(QuantizedProducts, of_the_reference_have_the_bits_of_its_dense_products) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const int options : {0, 2, 6, 8, 14}) {
      const MatMul op = product(5, 64, 96, dtype, dtype, options);
      MatMul dense = op;
      dense.b = dequantized(op.b, dtype), dense.c = clone(op.c);
      reference::run(op);
      reference::run(dense);
      expect_same_bits(op.c, dense.c);
    }
}

NOUGHT_SIZE(medium);
TEST_F(QuantizedProducts, the_number_of_threads_changes_no_bit) {
  for (const auto [inputs, output] : {kDtypes[0], kDtypes[1], kDtypes[3]})
    for (const int64_t m : {1, 5, 48})
      for (const int options : {0, m == 5 ? 6 : 10}) {
        const MatMul op = product(m, 416, 1056, inputs, output, options);
        Tensor first;
        for (const int threads : {1, 2, 3}) {
          const ThreadCount guard(threads);
          MatMul again = op;
          again.c = clone(op.c);
          run(again);
          if (!first) first = again.c;
          expect_same_bits(again.c, first);
        }
      }
}

TEST_F(QuantizedProducts, a_row_among_few_has_the_bits_that_it_has_alone) {
  const MatMul op = product(11, 70, 192, DType::bf16, DType::f32, 2);
  run(op);
  for (int64_t row = 0; row < 11; ++row) {
    const Tensor alone = empty({1, 70}, DType::f32);
    run(MatMul{.a = op.a.slice(row, row + 1), .b = op.b, .c = alone, .transpose_b = true});
    expect_same_bits(alone, clone(op.c.slice(row, row + 1)));
  }
}

NOUGHT_SIZE(medium);
TEST_F(QuantizedProducts, never_hold_the_dense_weight) {
  const ThreadCount guard(1);  // each thread has a tile
  for (const int options : {0, 2})
    for (const DType dtype : kCpuDTypes) {
      const int64_t m = 32, n = 2048, k = 1024;
      const MatMul op = product(m, n, k, dtype, dtype, options);
      cpu::ScratchUse::reset_peak();
      const int64_t before = cpu::ScratchUse::peak();
      cpu::run(op);
      const int64_t dense = n * k * size_of(DType::f32), operands = (m * n + m * k) * size_of(DType::f32);
      EXPECT_LT(cpu::ScratchUse::peak() - before, dense / 4 + operands) << name_of(dtype) << ", options " << options;
    }
}

TEST_F(QuantizedProducts, gradient_by_the_input_matches_central_differences) {
  const Weight weight = quantized(random({5, 32}, DType::f32, 1));
  const Tensor x = random({3, 32}, DType::f64, 2), y = empty({3, 5}, DType::f64), dy = random({3, 5}, DType::f64, 3),
               dx = empty({3, 32}, DType::f64);
  run(MatMul{.a = dy, .b = weight, .c = dx});
  const auto loss = [&] {
    run(MatMul{.a = x, .b = weight, .c = y, .transpose_b = true});
    return dot(y, dy);
  };
  EXPECT_LE(gradient_error(x, dx, loss), 1e-6);
}

}  // namespace
}  // namespace nought::weight_test
