#include "nought/kernels/ops/elementwise.h"

#include <limits>

#include "support/kernel_test.h"

namespace nought::elementwise_test {
namespace {

using namespace test;

const std::vector<int64_t> kSizes{1, 3, 7, 17, 31, 33, 64, 100, 257, 1003};
// Every float dtype against every other, f64 included.
const std::vector<DType> kFloats{DType::f64, DType::f32, DType::bf16, DType::f16};

class Elementwise : public KernelTest {};

TEST_F(Elementwise, add_is_the_exact_sum_rounded_once) {
  for_each_instruction_set([&] {
    for (DType dtype : kCpuDTypes) {
      for (int64_t n : kSizes) {
        Tensor a = random({n}, dtype, 1), b = random({n}, dtype, 2);
        Tensor expected = converted(*memory_, a, DType::f64);
        reference::run(AddTo{.x = b, .into = expected});
        expected = converted(*memory_, expected, dtype);
        run(Add{.a = a, .b = b, .out = a});  // in place
        expect_same_bits(a, expected);
      }
    }
  });
}

TEST_F(Elementwise, scale_and_fill_agree_with_the_reference_bit_for_bit) {
  for_each_instruction_set([&] {
    for (DType dtype : kFloats) {
      for (int64_t n : kSizes) {
        Tensor x = random({n}, dtype, 3), y = clone(x);
        run(Scale{.x = x, .factor = 0.3});
        reference::run(Scale{.x = y, .factor = 0.3});
        expect_same_bits(x, y);
        run(Scale{.x = x, .squares = of<double>({9}), .factor = 2, .eps = 1});  // by 2 / (3 + 1)
        reference::run(Scale{.x = y, .factor = 0.5});
        expect_same_bits(x, y);
        run(Fill{.x = x, .value = 1.0 / 3});
        reference::run(Fill{.x = y, .value = 1.0 / 3});
        expect_same_bits(x, y);
      }
    }
  });
}

TEST_F(Elementwise, casts_and_mixed_additions_agree_with_the_reference_bit_for_bit) {
  for_each_instruction_set([&] {
    for (DType from : kFloats) {
      for (DType to : kFloats) {
        for (int64_t n : kSizes) {
          Tensor x = random({n}, from, 4);
          Tensor y = empty({n}, to), z = clone(y);
          run(Cast{.x = x, .y = y});
          reference::run(Cast{.x = x, .y = z});
          expect_same_bits(y, z);
          Tensor into = random({n}, to, 5), same = clone(into);
          run(AddTo{.x = x, .into = into});
          reference::run(AddTo{.x = x, .into = same});
          expect_same_bits(into, same);
        }
      }
    }
  });
}

TEST_F(Elementwise, every_16_bit_code_survives_a_round_trip_through_the_vectors) {
  for_each_instruction_set([&] {
    for (DType dtype : {DType::bf16, DType::f16}) {
      Tensor codes = empty({65536}, dtype);
      for (int i = 0; i < 65536; ++i) reinterpret_cast<uint16_t*>(codes.raw())[i] = static_cast<uint16_t>(i);
      Tensor wide = empty({65536}, DType::f32);
      Tensor back = empty({65536}, dtype);
      run(Cast{.x = codes, .y = wide});
      run(Cast{.x = wide, .y = back});
      const auto values = codes.to_vector<float>();
      for (size_t i = 0; i < 65536; ++i) {
        if (std::isnan(values[i])) {
          ASSERT_TRUE(std::isnan(wide.data<float>()[i]));
          ASSERT_TRUE(std::isnan(back.to_vector<float>()[i])) << i;
          i += 1000;  // a sample of the NaNs: to_vector() converts the whole tensor
        } else {
          ASSERT_EQ(wide.data<float>()[i], values[i]) << i;
          ASSERT_EQ(reinterpret_cast<uint16_t*>(back.raw())[i], i);
        }
      }
    }
  });
}

TEST_F(Elementwise, stores_round_to_nearest_even_at_midpoints_extremes_and_subnormals) {
  const float tiny = std::numeric_limits<float>::denorm_min(), huge = std::numeric_limits<float>::max();
  std::vector<float> values{0.0f, -0.0f, tiny, -tiny, huge, -huge, INFINITY, -INFINITY, 65519.0f, 65520.0f, 65536.0f};
  for (int i = 0; i < 2000; ++i) {  // around the midpoints of neighbouring codes of both 16-bit formats
    const uint32_t code = philox(7, static_cast<uint64_t>(i))[0] & 0xFFFFE000u;
    for (uint32_t offset : {0x7FFFu, 0x8000u, 0x8001u, 0xFFFu, 0x1000u, 0x1001u}) {
      const float value = std::bit_cast<float>(code + offset);
      if (!std::isnan(value)) values.push_back(value);
    }
    values.push_back(std::ldexp(static_cast<float>(normal_at(8, static_cast<uint64_t>(i))), -20 - i % 8));
  }
  const auto n = static_cast<int64_t>(values.size());
  Tensor x = of(values);
  for_each_instruction_set([&] {
    for (DType dtype : {DType::bf16, DType::f16}) {
      Tensor actual = empty({n}, dtype);
      run(Cast{.x = x, .y = actual});
      expect_same_bits(actual, converted(*memory_, x, dtype));
    }
  });
}

TEST_F(Elementwise, a_nan_of_any_payload_stays_nan_and_leaves_its_neighbours_alone) {
  constexpr int64_t kCount = 99;  // pairs of vectors, a vector and a part of one, on every instruction set
  const Tensor numbers = random({kCount}, DType::f32, 1);
  const Tensor expected = converted(*memory_, numbers, DType::bf16);
  for_each_instruction_set([&] {
    for (const uint32_t nan : {0x7FFFFFFFu, 0xFFFFFFFFu, 0x7F800001u, 0xFF800001u, 0x7FC00000u}) {
      for (int64_t at = 0; at < kCount; ++at) {
        Tensor x = clone(numbers), y = empty({kCount}, DType::bf16);
        x.data<float>()[at] = std::bit_cast<float>(nan);
        run(Cast{.x = x, .y = y});
        ASSERT_TRUE(std::isnan(y.to_vector<float>()[static_cast<size_t>(at)])) << at;
        y.data<bf16_t>()[at] = expected.data<bf16_t>()[at];
        expect_same_bits(y, expected);
      }
    }
  });
}

TEST_F(Elementwise, a_double_is_rounded_to_16_bits_once) {
  // Just above the midpoint of 1 and 1 + 2^-7 by less than fp32 can see: by way of fp32 it would round to even, to 1.
  const std::vector<double> values{1 + 0x1p-8 + 0x1p-40, 1 + 0x1p-8 - 0x1p-40, -(1 + 0x1p-8 + 0x1p-40)};
  Tensor y = converted(*memory_, of(values), DType::bf16);
  EXPECT_EQ(y.to_vector<double>(), (std::vector<double>{1 + 0x1p-7, 1, -(1 + 0x1p-7)}));
}

TEST_F(Elementwise, results_do_not_depend_on_the_number_of_threads) {
  constexpr int64_t kCount = 200003;
  Tensor a = random({kCount}, DType::bf16, 1), b = random({kCount}, DType::f32, 2);
  Tensor first;
  for (int threads : {1, 2, 4}) {
    ThreadCount guard(threads);
    Tensor into = clone(b);
    run(AddTo{.x = a, .into = into});
    run(Scale{.x = into, .factor = 1.7});
    if (!first) first = into;
    expect_same_bits(into, first);
  }
}

TEST_F(Elementwise, nothing_outside_of_a_view_is_written) {
  for_each_instruction_set([&] {
    for (DType dtype : kCpuDTypes) {
      for (int64_t n : kSizes) {
        Tensor whole = random({n + 10}, dtype, 6), before = clone(whole), view = whole.flat(5, n + 5);
        run(Add{.a = random({n}, dtype, 7), .b = view, .out = view});
        run(Cast{.x = random({n}, DType::f32, 8), .y = view});
        expect_same_bits(whole.flat(0, 5), before.flat(0, 5));
        expect_same_bits(whole.flat(n + 5, n + 10), before.flat(n + 5, n + 10));
      }
    }
  });
}

TEST_F(Elementwise, tensors_that_do_not_fit_are_refused) {
  Tensor a = random({4}, DType::f32, 1), b = random({5}, DType::f32, 1), c = random({4}, DType::bf16, 1);
  Tensor ids = random_ids(*memory_, {4}, 10, 1);
  EXPECT_THROW(run(Add{.a = a, .b = b, .out = a}), ShapeError);
  EXPECT_THROW(run(Add{.a = a, .b = c, .out = a}), ShapeError);
  EXPECT_THROW(run(Add{.a = a, .b = a, .out = {}}), ShapeError);
  EXPECT_THROW(run(Cast{.x = a, .y = b}), ShapeError);
  EXPECT_THROW(run(Scale{.x = ids}), ShapeError);
  EXPECT_THROW(reference::run(Fill{.x = ids}), ShapeError);
}

}  // namespace
}  // namespace nought::elementwise_test
