#include "support/kernel_test.h"

namespace nought::softcap_test {
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

TEST_F(SoftcapTest, a_cap_that_is_not_positive_is_refused) {
  EXPECT_THROW(run(Softcap{random({3}, DType::f32, 1), 0}), ShapeError);
}

}  // namespace
}  // namespace nought::softcap_test
