#include "nought/kernels/normal.h"

#include "support/kernel_test.h"
#include "support/size.h"

namespace nought::normal_test {
namespace {

using test::expect_same_bits;
using test::for_each_instruction_set;
using test::KernelTest;
using test::ThreadCount;

class FillNormal : public KernelTest {
 protected:
  /// What the definition says, one value at a time.
  Tensor expected(int64_t n, DType dtype, uint64_t key, int64_t first, double std) {
    std::vector<float> values;
    for (int64_t i = 0; i < n; ++i)
      values.push_back(static_cast<float>(std * normal_at(key, static_cast<uint64_t>(first + i))));
    return test::converted(*memory_, of(values), dtype);
  }
};

TEST_F(FillNormal, has_the_bits_of_each_value_alone_wherever_it_begins) {
  for_each_instruction_set([&] {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
      for (const int64_t first : {0, 1, 7, 1000}) {
        for (const int64_t n : {1, 2, 15, 16, 17, 1100}) {
          Tensor x = empty({n}, dtype);
          fill_normal(x, 42, first, 0.02);
          expect_same_bits(x, expected(n, dtype, 42, first, 0.02));
        }
      }
    }
  });
}

NOUGHT_SIZE(medium);
TEST_F(FillNormal, has_them_over_many_values) {
  constexpr int64_t kCount = 1 << 20;
  const Tensor exact = expected(kCount, DType::f32, 7, int64_t{1} << 33, 1);
  for_each_instruction_set([&] {
    Tensor x = empty({kCount}, DType::f32);
    fill_normal(x, 7, int64_t{1} << 33, 1);
    expect_same_bits(x, exact);
  });
}

NOUGHT_SIZE(medium);
TEST_F(FillNormal, does_not_depend_on_the_number_of_threads) {
  Tensor first;
  for (const int threads : {1, 2, 3}) {
    ThreadCount guard(threads);
    Tensor x = empty({100001}, DType::f32);
    fill_normal(x, 3, 5, 0.5);
    if (!first) first = x;
    expect_same_bits(x, first);
  }
}

}  // namespace
}  // namespace nought::normal_test
