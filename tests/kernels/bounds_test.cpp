#include "support/kernel_test.h"

namespace nought::bounds_test {
namespace {

using namespace test;

class SoftcapTest : public KernelTest {};

TEST_F(SoftcapTest, both_directions_are_rounded_once) {
  for_each_instruction_set([&] {
    for (DType dtype : kCpuDTypes) {
      for (int64_t size : {1, 17, 1000}) {
        const Softcap op{random({size}, dtype, 1, 20), 5};
        const Softcap expected{wide(op.x), 5};
        run(op);
        reference::run(expected);
        expect_rounded(op.x, expected.x, 5e-6);

        const SoftcapBackward back{op.x, random({size}, dtype, 2), 5};
        const SoftcapBackward expected_back{wide(back.y), wide(back.d), 5};
        run(back);
        reference::run(expected_back);
        expect_rounded(back.d, expected_back.d, 1e-6);
      }
    }
  });
}

TEST_F(SoftcapTest, gradient_is_that_of_central_differences) {
  const Tensor x = random({9}, DType::f64, 1, 4), weights = random({9}, DType::f64, 2), y = clone(x);
  reference::run(Softcap{y, 3});
  const SoftcapBackward back{y, clone(weights), 3};
  reference::run(back);
  const auto loss = [&] {
    const Tensor capped = clone(x);
    reference::run(Softcap{capped, 3});
    return dot(capped, weights);
  };
  EXPECT_LE(gradient_error(x, back.d, loss), 1e-8);
}

class ClampTest : public KernelTest {};

TEST_F(ClampTest, both_directions_are_those_of_the_reference) {
  for_each_instruction_set([&] {
    for (DType dtype : kCpuDTypes) {
      for (int64_t size : {1, 17, 1000}) {
        const Tensor x = random({size}, dtype, 1, 4), dy = random({size}, dtype, 2);
        const Clamp op{x, clone(x), 2.5}, expected{x, clone(x), 2.5};
        run(op);
        reference::run(expected);
        expect_same_bits(op.y, expected.y);

        const ClampBackward back{x, dy, clone(dy), 2.5}, expected_back{x, dy, clone(dy), 2.5};
        run(back);
        reference::run(expected_back);
        expect_same_bits(back.dx, expected_back.dx);
      }
    }
  });
}

TEST_F(ClampTest, what_is_at_the_limit_has_a_gradient_and_what_is_beyond_has_none) {
  const std::vector<float> values = {-3, -2, 0.5, 2, 2.25, -0.0f};
  const Tensor x = of(values), y = clone(x), dx = clone(x), ones = of(std::vector<float>(values.size(), 1));
  run(Clamp{x, y, 2});
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{-2, -2, 0.5, 2, 2, -0.0f}));
  run(ClampBackward{x, ones, dx, 2});
  EXPECT_EQ(dx.to_vector<float>(), (std::vector<float>{0, 1, 1, 1, 0, 1}));
}

TEST_F(ClampTest, a_value_that_is_no_number_stays_one_that_is_none) {
  const Tensor x = of(std::vector<float>(17, NAN));
  run(Clamp{x, x, 2});
  for (const float value : x.to_vector<float>()) EXPECT_TRUE(std::isnan(value));
}

TEST_F(ClampTest, a_limit_that_is_not_positive_is_refused) {
  const Tensor x = random({3}, DType::f32, 1);
  EXPECT_THROW(run(Clamp{x, x, 0}), ShapeError);
}

TEST_F(SoftcapTest, a_cap_that_is_not_positive_is_refused) {
  EXPECT_THROW(run(Softcap{random({3}, DType::f32, 1), 0}), ShapeError);
}

}  // namespace
}  // namespace nought::bounds_test
