#include "nought/tensor/tensor.h"

#include <array>

#include "support/host_tensors.h"
#include <gtest/gtest.h>

namespace nought::tensor_test {
namespace {

TEST(Tensor, views_share_bytes_and_stay_inside) {
  auto memory = Memory::create();
  const std::array<float, 6> values{0, 1, 2, 3, 4, 5};
  Tensor t = Tensor::of<float>(*memory, {3, 2}, values);
  EXPECT_EQ(t.slice(1, 3).to_vector<float>(), (std::vector<float>{2, 3, 4, 5}));
  t.flat(2, 4).data<float>()[0] = 9;
  EXPECT_EQ(t.data<float>()[2], 9);
  EXPECT_THROW(t.flat(3, 7), ShapeError);
  EXPECT_THROW(t.data<double>(), ShapeError);
  EXPECT_THROW(t.reshape({4}), ShapeError);
  EXPECT_FALSE(t.slice(0, 1).unique());
}

TEST(Tensor, a_tensor_has_rows_of_its_last_dimension) {
  const auto memory = Memory::create();
  const Tensor t = Tensor::zeros(*memory, {2, 3, 4}, DType::bf16, Category::activations);
  EXPECT_EQ(t.rows(), 6);
  EXPECT_EQ(t.bytes(), 48);
  EXPECT_EQ(t.str(), "bf16[2, 3, 4]");
  EXPECT_EQ(t.reshape({6, 4}).slice(1, 3).numel(), 8);
  EXPECT_THROW(t.item(), Error);
  EXPECT_FALSE(Tensor().defined());
}

TEST(Tensor, the_bytes_may_be_read_as_another_dtype) {
  const auto memory = Memory::create();
  const std::array<float, 2> values{1, -2};
  const Tensor floats = Tensor::of<float>(*memory, {2}, values), halves = floats.reinterpret(DType::bf16);
  EXPECT_EQ(halves.numel(), 4);
  EXPECT_EQ(static_cast<float>(halves.data<bf16_t>()[1]), 1) << "the upper half of an fp32 is its bf16";
  EXPECT_EQ(static_cast<float>(halves.data<bf16_t>()[3]), -2);
  EXPECT_THROW(floats.flat(0, 1).reinterpret(DType::f64), ShapeError);
}

TEST(Tensor, copies_are_of_one_dtype_and_size) {
  const auto memory = Memory::create();
  const std::array<float, 3> values{1, 2, 3};
  const Tensor from = Tensor::of<float>(*memory, {3}, values);
  const Tensor to = Tensor::zeros(*memory, {3}, DType::f32, Category::activations);
  test::copy(from, to);
  EXPECT_EQ(to.to_vector<int>(), (std::vector<int>{1, 2, 3}));
  EXPECT_THROW(test::copy(from, to.flat(0, 2)), ShapeError);
  EXPECT_THROW(test::copy(from, to.reinterpret(DType::i32)), ShapeError);
}

}  // namespace
}  // namespace nought::tensor_test
