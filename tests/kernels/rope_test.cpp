#include <numeric>

#include "support/kernel_test.h"

namespace nought::rope_test {
namespace {

using namespace test;

constexpr int64_t kTokens = 7, kHeads = 3, kPositions = 20;

class Rotary : public KernelTest {
 protected:
  /// Heads that lie inside of wider rows, with columns before and after that must stay as they are.
  Rope make(DType dtype, int64_t head_dim, int64_t rotary_dim, bool interleaved) {
    const int64_t width = kHeads * head_dim + 11;
    const DType table_dtype = dtype == DType::f64 ? DType::f64 : DType::f32;
    Tensor cos = empty({kPositions, rotary_dim / 2}, DType::f64), sin = empty({kPositions, rotary_dim / 2}, DType::f64);
    for (int64_t p = 0; p < kPositions; ++p) {
      for (int64_t i = 0; i < rotary_dim / 2; ++i) {
        const double angle =
            static_cast<double>(p) * std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim));
        cos.data<double>()[p * rotary_dim / 2 + i] = std::cos(angle);
        sin.data<double>()[p * rotary_dim / 2 + i] = std::sin(angle);
      }
    }
    return {.x = {.base = random({kTokens, width}, dtype, 1), .offset = 5, .token_stride = width},
            .cos = converted(*memory_, cos, table_dtype),
            .sin = converted(*memory_, sin, table_dtype),
            .positions = random_ids(*memory_, {kTokens}, kPositions, 2),
            .num_heads = kHeads,
            .head_dim = head_dim,
            .rotary_dim = rotary_dim,
            .interleaved = interleaved};
  }
  Rope widened(Rope op) {
    op.x.base = wide(op.x.base), op.cos = wide(op.cos), op.sin = wide(op.sin);
    return op;
  }
};

TEST_F(Rotary, is_rounded_once_and_touches_its_heads_alone) {
  for_each_instruction_set([&] {
    for (DType dtype : kCpuDTypes) {
      for (bool interleaved : {false, true}) {
        for (bool inverse : {false, true}) {
          for (auto [head_dim, rotary_dim] :
               {std::pair<int64_t, int64_t>{2, 2}, {6, 4}, {31, 14}, {64, 64}, {100, 66}, {128, 96}}) {
            Rope op = make(dtype, head_dim, rotary_dim, interleaved);
            op.inverse = inverse;
            Rope expected = widened(op);
            run(op);
            reference::run(expected);
            expect_rounded(op.x.base, expected.x.base, 1e-6);
          }
        }
      }
    }
  });
}

TEST_F(Rotary, inverse_undoes_it) {
  for (bool interleaved : {false, true}) {
    Rope op = make(DType::f64, 12, 8, interleaved);
    Tensor before = clone(op.x.base);
    reference::run(op);
    EXPECT_GT(max_abs_difference(op.x.base, before), 0.1);
    op.inverse = true;
    reference::run(op);
    EXPECT_LE(max_abs_difference(op.x.base, before), 1e-14);
  }
}

TEST_F(Rotary, makes_products_depend_on_the_distance_alone) {
  // Two equal queries and keys, each pair 4 positions apart: their products agree wherever the pairs stand.
  Rope op = make(DType::f64, 8, 8, false);
  op.x = {.base = empty({4, kHeads * 8}, DType::f64), .offset = 0, .token_stride = kHeads * 8};
  Tensor pair = random({2, kHeads * 8}, DType::f64, 9);
  copy(pair, op.x.base.slice(0, 2));
  copy(pair, op.x.base.slice(2, 4));
  op.positions = of<int32_t>({5, 1, 17, 13});
  reference::run(op);
  const auto x = [&](int64_t token) { return op.x.base.slice(token, token + 1); };
  EXPECT_NEAR(dot(x(0), x(1)), dot(x(2), x(3)), 1e-12);
}

TEST_F(Rotary, gradient_is_the_inverse_rotation) {
  for (bool interleaved : {false, true}) {
    Rope op = make(DType::f64, 6, 4, interleaved);
    Tensor x = clone(op.x.base), weights = random(x.shape(), DType::f64, 3);
    Rope backward = op;
    backward.x.base = clone(weights), backward.inverse = true;
    reference::run(backward);
    const auto loss = [&] {
      copy(x, op.x.base);
      reference::run(op);
      return dot(op.x.base, weights);
    };
    EXPECT_LE(gradient_error(x, backward.x.base, loss), 1e-6);
  }
}

TEST_F(Rotary, bad_layouts_and_positions_are_refused) {
  Rope op = make(DType::f32, 8, 8, false);
  op.rotary_dim = 10;
  EXPECT_THROW(run(op), ShapeError);
  op = make(DType::f32, 8, 8, false);
  op.x.offset = 20;
  EXPECT_THROW(run(op), ShapeError);
  op = make(DType::f32, 8, 8, false);
  op.x.token_stride = 20;
  EXPECT_THROW(run(op), ShapeError);
  op = make(DType::f32, 8, 8, false);
  op.positions.data<int32_t>()[3] = kPositions;
  EXPECT_THROW(run(op), Error);
  EXPECT_THROW(reference::run(op), Error);
}

}  // namespace
}  // namespace nought::rope_test
