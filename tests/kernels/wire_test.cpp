// Records of few bits keep values within their bounds, lie where they are sent from, and are the same on both backends.
#include "nought/kernels/ops/wire.h"

#include "support/kernel_test.h"
#include "support/message_of.h"
#include <gmock/gmock.h>

#include "nought/kernels/wire_records.h"

namespace nought::wire_test {
namespace {

using namespace test;
using testing::HasSubstr;

class WireRecords : public KernelTest {
 protected:
  Tensor records(int64_t count, int64_t numel, int bits) {
    return empty({count * wire_record_bytes(numel, bits)}, DType::u8);
  }
  Tensor encoded(const Tensor& x, int bits, int64_t parts = 1, int64_t hosts = 1) {
    const Tensor to = records(parts, x.numel() / parts, bits), expected = records(parts, x.numel() / parts, bits);
    EncodeWire op{.x = x, .records = to, .bits = bits, .parts = parts, .hosts = hosts};
    run(op);
    op.records = expected;
    reference::run(op);
    expect_same_bits(to, expected);
    return to;
  }
  Tensor decoded(const Tensor& from, int bits, int64_t numel, DType dtype = DType::f32, int64_t parts = 1,
                 int64_t terms = 1) {
    const Tensor y = empty({numel}, dtype);
    run(DecodeWire{.records = from, .y = y, .bits = bits, .parts = parts, .terms = terms});
    return y;
  }
};

TEST_F(WireRecords, no_value_moves_by_more_than_half_a_scale_but_for_the_largest_one) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16})
    for (const int bits : {4, 8})
      for (const int64_t numel : {8, 40, 511 * 8, 512, 1000}) {
        for (const int decade : {-20, -3, 0, 3}) {
          if (dtype == DType::f16 && decade == -20) continue;
          const Tensor x = random_tensor(*memory_, {numel}, dtype, 5, std::pow(10.0, decade));
          const auto values = x.to_vector<double>(), back = decoded(encoded(x, bits), bits, numel).to_vector<double>();
          for (int64_t block = 0; block < numel; block += kWireBlock) {
            const int64_t end = std::min(numel, block + kWireBlock);
            double most = 0;
            for (int64_t i = block; i < end; ++i) most = std::max(most, std::abs(values[static_cast<size_t>(i)]));
            const double step = std::ldexp(most, 1 - bits);  // the bound: max / 2^b, and one step at the upper end
            for (int64_t i = block; i < end; ++i) {
              const double value = values[static_cast<size_t>(i)], got = back[static_cast<size_t>(i)];
              const bool upper = value > most - step;
              ASSERT_LE(std::abs(value - got), (upper ? step : step / 2) * (1 + 1e-5) + 1e-6 * most)
                  << value << " of at most " << most << " in " << bits << " bits of " << name_of(dtype);
            }
          }
        }
      }
}

TEST_F(WireRecords, the_largest_value_becomes_the_largest_code) {
  for (const auto& [bits, largest] : {std::pair(8, 127.0F / 128), {4, 7.0F / 8}}) {
    const Tensor x = of<float>({3, -1, 0, 1, 2, -2, 1.5, 0.25});
    const auto back = decoded(encoded(x, bits), bits, 8).to_vector<float>();
    EXPECT_EQ(back[0], 3 * largest);
    const auto negative = decoded(encoded(of<float>({-3, -1, 0, 1, 2, -2, 1.5, 0.25}), bits), bits, 8);
    EXPECT_EQ(negative.to_vector<float>()[0], -3) << "the other end is exact";
  }
}

TEST_F(WireRecords, values_of_16_and_32_bits_are_kept) {
  const Tensor x = random_tensor(*memory_, {1030}, DType::bf16, 6);
  for (const int bits : {16, 32}) expect_same_bits(decoded(encoded(x, bits), bits, 1030, DType::bf16), x);
}

TEST_F(WireRecords, records_are_of_the_size_that_formulas_say) {
  EXPECT_EQ(wire_record_bytes(1024, 4), 512 + 2 * 4);
  EXPECT_EQ(wire_record_bytes(1056, 8), 1056 + 3 * 4);
  EXPECT_EQ(wire_record_bytes(1056, 16), 2 * 1056);
  EXPECT_EQ(wire_record_bytes(1056, 32), 4 * 1056);
}

/// Two hosts of four ranks: 0 4 1 5 2 6 3 7.
TEST_F(WireRecords, parts_lie_by_rank_and_then_by_host) {
  for (const auto& [ranks, hosts] : {std::pair(4, 2), {2, 3}, {3, 1}, {1, 3}}) {
    const int64_t parts = ranks * hosts, numel = 8;
    Tensor x = empty({parts * numel}, DType::f32);
    for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = static_cast<float>(i / numel + 1);
    const auto back = decoded(encoded(x, 32, parts, hosts), 32, parts * numel, DType::f32, parts).to_vector<float>();
    for (int64_t rank = 0, at = 0; rank < ranks; ++rank)
      for (int64_t host = 0; host < hosts; ++host, ++at)
        EXPECT_EQ(back[static_cast<size_t>(at * numel)], static_cast<float>(host * ranks + rank + 1));
  }
}

TEST_F(WireRecords, terms_are_added_in_fp32_in_their_order) {
  const int64_t numel = 600, terms = 3, parts = 2;
  for (const int bits : {4, 8, 16, 32}) {
    const Tensor x = random_tensor(*memory_, {terms * parts * numel}, DType::f32, 9);
    const Tensor from = encoded(x, bits, terms * parts);
    const auto each = decoded(from, bits, x.numel(), DType::f32, terms * parts).to_vector<float>();
    const auto sums = decoded(from, bits, parts * numel, DType::f32, parts, terms).to_vector<float>();
    for (size_t i = 0; i < sums.size(); ++i) {
      const float sum = (each[i] + each[i + sums.size()]) + each[i + 2 * sums.size()];
      ASSERT_NEAR(sums[i], sum, 1e-6F * (1 + std::abs(sum)));
      if (bits >= 16) {
        ASSERT_EQ(sums[i], sum);
      }
    }
  }
}

TEST_F(WireRecords, what_is_not_finite_becomes_nan_in_its_block_alone) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    for (const int bits : {4, 8}) {
      const Tensor x = random_tensor(*memory_, {2 * kWireBlock}, DType::f32, 3);
      x.data<float>()[5] = bad;
      const auto back = decoded(encoded(x, bits), bits, x.numel()).to_vector<float>();
      for (int64_t i = 0; i < x.numel(); ++i) ASSERT_EQ(std::isnan(back[static_cast<size_t>(i)]), i < kWireBlock) << i;
    }
}

TEST_F(WireRecords, numbers_that_are_too_small_and_zeros_become_zero) {
  for (const float small : {0.0F, 1e-40F, 1e-37F})
    for (const float value : decoded(encoded(of<float>(std::vector<float>(8, small)), 4), 4, 8).to_vector<float>())
      EXPECT_EQ(value, 0);
}

/// With beta 0 the error is exactly what the codes lost of x + error.
TEST_F(WireRecords, what_codes_lose_is_kept_as_the_error) {
  const int64_t numel = 2 * 520;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const double beta : {0.0, 0.8}) {
      const Tensor x = random_tensor(*memory_, {numel}, dtype, 3),
                   before = random_tensor(*memory_, {numel}, dtype, 4, 0.1);
      const Tensor error = cloned(*memory_, before), same = cloned(*memory_, before);
      const Tensor to = records(2, numel / 2, 4);
      EncodeWire op{.x = x, .records = to, .error = error, .bits = 4, .parts = 2, .beta = beta};
      run(op);
      const auto sent = decoded(to, 4, numel, DType::f32, 2).to_vector<double>(), values = x.to_vector<double>(),
                 old = before.to_vector<double>(), kept = error.to_vector<double>();
      for (size_t i = 0; i < values.size(); ++i) {
        const double expected = beta * old[i] + (1 - beta) * (values[i] + old[i] - sent[i]);
        ASSERT_NEAR(kept[i], expected, unit_roundoff(dtype) * std::abs(expected) + 1e-6);
      }
      op.error = same;
      reference::run(op);
      expect_close(error, same, unit_roundoff(dtype) * 2, 1e-6);
    }
}

TEST_F(WireRecords, the_number_of_threads_changes_nothing) {
  const Tensor x = random_tensor(*memory_, {64 * 1056}, DType::f32, 12);
  Tensor one, three;
  const auto both = [&](int threads) {
    const ThreadCount scope(threads);
    return decoded(encoded(x, 4, 8, 4), 4, 2 * 8 * 1056, DType::f32, 2, 4);
  };
  one = both(1), three = both(3);
  expect_same_bits(one, three);
}

TEST_F(WireRecords, what_does_not_fit_is_refused_by_name) {
  const Tensor x = random_tensor(*memory_, {64}, DType::f32, 1);
  const auto refusal = [&](const EncodeWire& op) { return message_of<ShapeError>([&] { run(op); }); };
  EXPECT_THAT(refusal({.x = x, .records = records(1, 64, 8), .bits = 5}), HasSubstr("bits is 5"));
  EXPECT_THAT(refusal({.x = x, .records = records(1, 64, 8), .bits = 4}), HasSubstr("EncodeWire: records is u8["));
  EXPECT_THAT(refusal({.x = x, .records = records(1, 64, 8), .parts = 3}), HasSubstr("not 3 equal parts"));
  EXPECT_THAT(refusal({.x = x, .records = records(16, 4, 4), .bits = 4, .parts = 16}), HasSubstr("words of 4 bytes"));
  EXPECT_THAT(refusal({.x = x, .records = records(4, 16, 8), .parts = 4, .hosts = 3}), HasSubstr("3 hosts"));
  EXPECT_THAT(message_of<ShapeError>([&] { run(DecodeWire{.records = records(1, 64, 8), .y = x, .terms = 2}); }),
              HasSubstr("DecodeWire: records"));
}

}  // namespace
}  // namespace nought::wire_test
