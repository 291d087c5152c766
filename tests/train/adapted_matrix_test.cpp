// What an adapter makes of a weight is scale B A, in the order in which the weight is stored.
#include "nought/weights/adapted_matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::adapted_matrix_test {
namespace {

using testing::ElementsAre;

class AdaptedMatrix : public ::testing::Test {
 protected:
  Tensor matrix(const Shape& shape, const std::vector<float>& values) const {
    return Tensor::of<float>(*context_.memory, shape, std::span<const float>(values));
  }
  const Context context_ = Context::cpu();
  const Tensor a_ = matrix({1, 3}, {1, 2, 3}), b_ = matrix({2, 1}, {10, 100});  // [rank, in], [out, rank]
};

TEST_F(AdaptedMatrix, the_product_is_added_to_any_rows_in_either_order) {
  const WeightFactors by_outputs = weight_factors(a_, b_, WeightLayout::out_in, 0.5, *context_.memory);
  const Tensor second = matrix({1, 3}, {1, 1, 1});
  add_product(context_, by_outputs, 1, second);
  EXPECT_THAT(second.to_vector<float>(), ElementsAre(51, 101, 151));

  const WeightFactors by_inputs = weight_factors(a_, b_, WeightLayout::in_out, 0.5, *context_.memory);
  const Tensor last = matrix({2, 2}, {0, 0, 1, 1});
  add_product(context_, by_inputs, 1, last);
  EXPECT_THAT(last.to_vector<float>(), ElementsAre(10, 100, 16, 151));
}

TEST_F(AdaptedMatrix, norms_are_those_of_what_forms_an_output) {
  const Tensor weight = matrix({2, 3}, {3, 0, 4, 0, 1, 0});
  EXPECT_THAT(output_norms(context_, weight, WeightLayout::out_in).to_vector<float>(), ElementsAre(5, 1));
  EXPECT_THAT(output_norms(context_, weight, WeightLayout::in_out).to_vector<float>(), ElementsAre(3, 1, 4));
  EXPECT_THAT(transposed(weight, *context_.memory).to_vector<float>(), ElementsAre(3, 0, 0, 1, 4, 0));
}

}  // namespace
}  // namespace nought::adapted_matrix_test
