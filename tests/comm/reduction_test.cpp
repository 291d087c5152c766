#include "nought/comm/reduction.h"

#include <cmath>
#include <limits>

#include "support/rank_values.h"
#include <gtest/gtest.h>

namespace nought::reduction_test {
namespace {

const Context& reference() {
  static const Context context = Context::reference();
  return context;
}

TEST(Reduction, adds_in_the_order_of_its_inputs_or_in_pairs_and_may_write_over_one_of_them) {
  Reduction reduction(reference().kernels);
  for (const std::vector<int>& order : {std::vector<int>{0, 1, 2, 3}, {3, 1, 0, 2}, {4, 2, 0, 1, 5, 3, 6}})
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::pairwise_sum, ReduceOp::max, ReduceOp::min}) {
      std::vector<Tensor> inputs;
      for (const int rank : order) inputs.push_back(test::tensor_of(reference(), test::values_of<float>(rank, 1000)));
      const Tensor out = inputs[2];
      reduction.run(inputs, out, op);
      test::expect_same("reduction", out, test::reduced_of<float>(order, 1000, op));
    }
}

TEST(Reduction, a_nan_anywhere_is_a_nan) {
  Reduction reduction(reference().kernels);
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min})
    for (size_t where = 0; where < 3; ++where) {
      std::vector<Tensor> inputs;
      for (int i = 0; i < 3; ++i) inputs.push_back(test::tensor_of<float>(reference(), {static_cast<float>(i)}));
      inputs[where].data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
      const Tensor out = reference().zeros({1}, DType::f32);
      reduction.run(inputs, out, op);
      EXPECT_TRUE(std::isnan(out.item())) << where;
    }
}

TEST(Reduction, of_integers_is_exact_and_of_nothing_is_nothing) {
  Reduction reduction(reference().kernels);
  const std::vector<int64_t> large{(int64_t{1} << 53) + 1};
  const Tensor out = reference().zeros({1}, DType::i64);
  reduction.run({test::tensor_of(reference(), large), test::tensor_of<int64_t>(reference(), {2})}, out, ReduceOp::sum);
  EXPECT_EQ(out.data<int64_t>()[0], large[0] + 2);
  const Tensor empty = reference().zeros({0}, DType::f32);
  EXPECT_NO_THROW(reduction.run({empty, empty}, empty, ReduceOp::max));
}

}  // namespace
}  // namespace nought::reduction_test
