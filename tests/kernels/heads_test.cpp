#include "support/kernel_test.h"

namespace nought::heads_test {
namespace {

using namespace test;

constexpr int64_t kTokens = 5, kHeads = 3;

class HeadsTest : public KernelTest {
 protected:
  /// Heads that lie `gap` elements apart inside of wider rows.
  Heads heads(DType dtype, int64_t head_dim, int64_t gap, uint64_t seed) {
    const int64_t width = kHeads * (head_dim + gap) + 7;
    return {random({kTokens, width}, dtype, seed), 3, width, head_dim + gap};
  }
  Heads widened(const Heads& x) { return {wide(x.base), x.offset, x.token_stride, x.head_stride}; }
};

TEST_F(HeadsTest, copies_and_sums_are_rounded_once_and_touch_their_heads_alone) {
  for_each_instruction_set([&] {
    for (DType dtype : kCpuDTypes) {
      for (int64_t head_dim : {1, 6, 31, 64}) {
        for (bool broadcast : {false, true}) {
          for (bool accumulate : {false, true}) {
            CopyHeads op{heads(dtype, head_dim, 2, 1),
                         heads(dtype, head_dim, 0, 2),
                         kTokens,
                         kHeads,
                         head_dim,
                         broadcast,
                         accumulate};
            CopyHeads expected = op;
            expected.from = widened(op.from), expected.to = widened(op.to);
            run(op);
            reference::run(expected);
            expect_rounded(op.to.base, expected.to.base, 1e-6);
          }
        }
        SumHeads op{heads(dtype, head_dim, 4, 3), heads(dtype, head_dim, 0, 4), kTokens, kHeads, head_dim};
        SumHeads expected{widened(op.from), widened(op.to), kTokens, kHeads, head_dim};
        run(op);
        reference::run(expected);
        expect_rounded(op.to.base, expected.to.base, 1e-6);
      }
    }
  });
}

TEST_F(HeadsTest, a_sum_is_the_gradient_of_a_broadcast) {
  const Heads x = heads(DType::f64, 4, 0, 1), y = heads(DType::f64, 4, 3, 2), weights = heads(DType::f64, 4, 3, 3);
  const Heads dx{empty(x.base.shape(), DType::f64), x.offset, x.token_stride};
  reference::run(SumHeads{weights, dx, kTokens, kHeads, 4});
  reference::run(CopyHeads{x, y, kTokens, kHeads, 4, /*broadcast=*/true});
  double with_y = 0, with_x = 0;  // <y, weights> over the heads equals <x, dx>
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t i = 0; i < 4; ++i) {
      with_x += x.base.data<double>()[x.at(t, 0, 4) + i] * dx.base.data<double>()[dx.at(t, 0, 4) + i];
      for (int64_t h = 0; h < kHeads; ++h)
        with_y += y.base.data<double>()[y.at(t, h, 4) + i] * weights.base.data<double>()[weights.at(t, h, 4) + i];
    }
  }
  EXPECT_NEAR(with_x, with_y, 1e-12);
}

TEST_F(HeadsTest, heads_out_of_bounds_or_on_each_other_are_refused) {
  CopyHeads op{heads(DType::f32, 8, 0, 1), heads(DType::f32, 8, 0, 2), kTokens, kHeads, 8};
  op.to.offset = 20;
  EXPECT_THROW(run(op), ShapeError);
  op.to = heads(DType::f32, 8, 0, 2), op.to.head_stride = 7;
  EXPECT_THROW(run(op), ShapeError);
  op.to = heads(DType::bf16, 8, 0, 2), op.accumulate = true;
  EXPECT_THROW(run(op), ShapeError);
}

TEST_F(HeadsTest, copies_to_another_dtype_are_rounded_once) {
  for_each_instruction_set([&] {
    for (const DType from : kCpuDTypes)
      for (const DType to : kCpuDTypes) {
        const CopyHeads op{heads(from, 31, 2, 1), heads(to, 31, 0, 2), kTokens, kHeads, 31};
        CopyHeads expected = op;
        expected.from = widened(op.from), expected.to = widened(op.to);
        run(op);
        reference::run(expected);
        expect_rounded(op.to.base, expected.to.base, 0);
      }
  });
}

}  // namespace
}  // namespace nought::heads_test
