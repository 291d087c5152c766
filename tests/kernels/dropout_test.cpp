// Dropout: what is dropped is a function of keys, rows and columns alone.
#include "nought/kernels/ops/dropout.h"

#include "support/kernel_test.h"

namespace nought::dropout_test {
namespace {

using namespace test;

class DropoutTest : public KernelTest {
 protected:
  Tensor rows(int64_t count, int64_t first = 0) {
    Tensor keys = Tensor::empty(*memory_, {count}, DType::i64, Category::activations);
    for (int64_t i = 0; i < count; ++i) keys.data<int64_t>()[i] = (int64_t{1} << 40) * (first + i) - 3;
    return keys;
  }
  Tensor ones(Shape shape, DType dtype = DType::f32) {
    const Tensor x = random(std::move(shape), dtype, 1);
    reference::run(Fill{x, 1});
    return x;
  }
};

TEST_F(DropoutTest, every_instruction_set_drops_what_the_reference_drops) {
  for_each_instruction_set([&] {
    for (const DType dtype : kCpuDTypes)
      for (const int64_t n : {1, 7, 64, 530, 1043})
        for (const int64_t first : {0, 5, 1024})
          for (const bool accumulate : {false, true}) {
            Dropout op{.x = random({3, n}, dtype, 1), .rows = rows(3), .y = random({3, n}, dtype, 2), .key = 9};
            op.probability = 0.3, op.first_column = first, op.accumulate = accumulate;
            Dropout expected = op;
            expected.x = wide(op.x), expected.y = wide(op.y);
            run(op);
            reference::run(expected);
            expect_rounded(op.y, expected.y, 1e-6);
          }
  });
}

TEST_F(DropoutTest, a_part_of_rows_and_columns_loses_what_the_whole_loses) {
  const Tensor x = random({4, 40}, DType::f32, 1), whole = clone(x), part = random({2, 13}, DType::f32, 2);
  run(Dropout{.x = x, .rows = rows(4), .y = whole, .key = 7, .probability = 0.4});
  for (int64_t i = 0; i < 2; ++i)
    for (int64_t j = 0; j < 13; ++j) part.data<float>()[i * 13 + j] = x.data<float>()[(i + 1) * 40 + j + 11];
  run(Dropout{.x = part, .rows = rows(2, 1), .y = part, .key = 7, .probability = 0.4, .first_column = 11});
  for (int64_t i = 0; i < 2; ++i)
    for (int64_t j = 0; j < 13; ++j)
      EXPECT_EQ(part.data<float>()[i * 13 + j], whole.data<float>()[(i + 1) * 40 + j + 11]);
}

TEST_F(DropoutTest, the_share_is_that_of_the_probability_and_the_mean_stays) {
  for (const double probability : {0.0, 0.05, 0.5}) {
    const Tensor x = ones({256, 64}), y = clone(x);
    run(Dropout{.x = x, .rows = rows(256), .y = y, .key = 3, .probability = probability});
    double sum = 0, zeros = 0;
    for (const float value : y.span<float>()) sum += double{value}, zeros += value == 0 ? 1 : 0;
    EXPECT_NEAR(zeros / 16384, probability, 0.01);
    EXPECT_NEAR(sum / 16384, 1, 0.02);
  }
}

TEST_F(DropoutTest, other_keys_and_rows_lose_others) {
  const auto result = [&](uint64_t key, int64_t first) {
    const Tensor x = ones({2, 64}), y = clone(x);
    run(Dropout{.x = x, .rows = rows(2, first), .y = y, .key = key, .probability = 0.5});
    return y.to_vector<float>();
  };
  EXPECT_EQ(result(1, 1), result(1, 1));
  EXPECT_NE(result(1, 1), result(2, 1));
  EXPECT_NE(result(1, 1), result(1, 2));
}

TEST_F(DropoutTest, what_is_no_probability_is_refused) {
  const Tensor x = random({2, 3}, DType::f32, 1);
  EXPECT_THROW(run(Dropout{.x = x, .rows = rows(2), .y = x, .probability = 1}), ShapeError);
  EXPECT_THROW(run(Dropout{.x = x, .rows = rows(3), .y = x, .probability = 0.5}), ShapeError);
}

}  // namespace
}  // namespace nought::dropout_test
