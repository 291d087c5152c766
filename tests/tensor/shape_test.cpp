#include "nought/tensor/shape.h"

#include <gtest/gtest.h>

namespace nought::shape_test {
namespace {

TEST(Shape, counts_elements_and_reads_axes_from_both_ends) {
  const Shape shape{2, 3, 4};
  EXPECT_EQ(shape.rank(), 3);
  EXPECT_EQ(shape.numel(), 24);
  EXPECT_EQ(shape[0], 2);
  EXPECT_EQ(shape[-1], 4);
  EXPECT_EQ(shape.str(), "[2, 3, 4]");
  EXPECT_EQ(Shape{}.numel(), 1) << "a scalar";
  EXPECT_EQ((Shape{5, 0}).numel(), 0);
}

TEST(Shape, equality_is_of_rank_and_extents) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_FALSE((Shape{2, 3}) == (Shape{3, 2}));
  EXPECT_FALSE((Shape{2, 3}) == (Shape{2, 3, 1}));
  EXPECT_FALSE(Shape{} == Shape{1});
}

TEST(Shape, refuses_a_seventh_dimension_and_negative_extents) {
  EXPECT_NO_THROW((Shape{1, 1, 1, 1, 1, 1}));
  EXPECT_THROW((Shape{1, 1, 1, 1, 1, 1, 1}), ShapeError);
  EXPECT_THROW((Shape{2, -1}), ShapeError);
}

}  // namespace
}  // namespace nought::shape_test
