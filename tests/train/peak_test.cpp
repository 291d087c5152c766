#include "nought/measure/peak.h"

#include <gtest/gtest.h>

#include "nought/comm/thread.h"

namespace nought::peak_test {
namespace {

TEST(MatrixPeak, is_the_same_for_all_ranks_and_never_exceeded) {
  run_ranks(2, [](Communicator& ranks, const Context& context) {
    MatrixPeak peak(ranks, context, DType::f32);
    const double measured = peak.flops();
    EXPECT_GT(measured, 0);
    const Tensor both = context.zeros({2}, DType::f64);
    const Tensor mine = Tensor::of<double>(*context.memory, {1}, std::span(&measured, 1), Category::communication);
    ranks.all_gather(mine, both).wait();
    EXPECT_EQ(both.data<double>()[0], both.data<double>()[1]);
    EXPECT_DOUBLE_EQ(peak.share_of(measured / 4), 0.25);
    EXPECT_EQ(peak.flops(), measured);
    // What was reached is the least that the machine can do, whatever a second measurement says.
    EXPECT_EQ(peak.share_of(measured * 1e6), 1.0);
    EXPECT_DOUBLE_EQ(peak.flops(), measured * 1e6);
    EXPECT_DOUBLE_EQ(peak.share_of(measured * 1e6 / 2), 0.5);
  });
}

TEST(ProductRate, is_measured_for_each_dtype) {
  for (const DType dtype : {DType::f32, DType::bf16}) EXPECT_GT(measure_product_rate(Context::cpu(), dtype), 0);
}

}  // namespace
}  // namespace nought::peak_test
