// Keys and values in other dtypes than that of the queries: how codes come about, and attention that reads them.
#include "nought/kernels/head_codes.h"

#include <cmath>
#include <limits>

#include "support/kernel_test.h"

namespace nought::head_codes_test {
namespace {

using namespace test;

constexpr int64_t kKvHeads = 2;

/// Keys or values of a cache: what they were, their codes (or numbers of another dtype), and what those stand for.
struct Cached {
  Tensor codes, scales, meant;
};

class HeadCodes : public KernelTest {
 protected:
  Heads rows(const Tensor& x) { return {x, 0, x.dim(1)}; }

  /// A cache of `dtype` that has all tokens of x, [tokens, kKvHeads * dim].
  Cached cached(const Tensor& x, int64_t dim, DType dtype) {
    const int64_t tokens = x.dim(0);
    Cached to{empty(x.shape(), dtype), {}, empty(x.shape(), DType::f64)};
    if (is_float(dtype)) {
      run(CopyHeads{.from = rows(x), .to = rows(to.codes), .tokens = tokens, .num_heads = kKvHeads, .head_dim = dim});
      to.meant = wide(to.codes);
      return to;
    }
    to.scales = empty({kKvHeads, tokens}, DType::f32);
    run(EncodeHeads{.from = rows(x),
                    .to = rows(to.codes),
                    .scales = to.scales,
                    .tokens = tokens,
                    .num_heads = kKvHeads,
                    .head_dim = dim});
    for (int64_t i = 0; i < x.numel(); ++i)
      to.meant.data<double>()[i] = code(to.codes, i) * scale(to, i / x.dim(1), i % x.dim(1) / dim);
    return to;
  }
  static double code(const Tensor& codes, int64_t i) {
    if (codes.dtype() == DType::i8) return codes.data<int8_t>()[i];
    return double{e4m3_value(codes.data<uint8_t>()[i])};
  }
  static double scale(const Cached& of, int64_t token, int64_t head) {
    return double{of.scales.data<float>()[head * of.scales.dim(1) + token]};
  }

  struct Sequence {
    AttentionShape shape;
    Tensor q, sinks;
    Cached k, v;
  };
  /// `queries` of them at the end of the first `keys` keys.
  Attention last(const Sequence& of, int64_t queries, int64_t keys) {
    AttentionShape shape = of.shape;
    shape.q_length = queries, shape.k_length = keys;
    const int64_t width = of.q.dim(1);
    return {.shape = shape,
            .q = {of.q, (keys - queries) * width, width},
            .k = rows(of.k.codes),
            .v = rows(of.v.codes),
            .out = empty({queries, shape.num_heads * shape.value_dim()}, of.q.dtype()),
            .lse = empty({shape.num_heads * queries}, DType::f32),
            .sinks = of.sinks,
            .k_scales = of.k.scales,
            .v_scales = of.v.scales};
  }
  Sequence sequence(int64_t length, int64_t dim, DType dtype, DType codes, bool special) {
    AttentionShape shape{.batch = 1,
                         .q_length = length,
                         .k_length = length,
                         .num_heads = 2 * kKvHeads,
                         .num_kv_heads = kKvHeads,
                         .head_dim = dim,
                         .scale = 0.3};
    if (special) shape.window = 45, shape.softcap = 2, shape.v_head_dim = 36;
    return {shape, random({length, shape.num_heads * dim}, dtype, 1), special ? random({4}, dtype, 2) : Tensor(),
            cached(random({length, kKvHeads * dim}, dtype, 3), dim, codes),
            cached(random({length, kKvHeads * shape.value_dim()}, dtype, 4), shape.value_dim(), codes)};
  }
};

TEST_F(HeadCodes, are_the_nearest_to_the_values_over_their_scale) {
  for (const DType dtype : kCpuDTypes)
    for (const DType codes : {DType::i8, DType::u8})
      for (const int64_t dim : {1, 6, 77}) {
        const Tensor x = random({9, kKvHeads * dim}, dtype, 5, 3);
        const Cached to = cached(x, dim, codes);
        const auto values = x.to_vector<double>();
        for (int64_t t = 0; t < 9; ++t)
          for (int64_t h = 0; h < kKvHeads; ++h) {
            double most = 0;
            const auto at = [&](int64_t i) { return (t * kKvHeads + h) * dim + i; };
            for (int64_t i = 0; i < dim; ++i) most = std::max(most, std::abs(values[static_cast<size_t>(at(i))]));
            const double step = scale(to, t, h);
            EXPECT_NEAR(step, most / (codes == DType::i8 ? 127 : 448), step * 1e-6);
            for (int64_t i = 0; i < dim; ++i) {
              const double value = values[static_cast<size_t>(at(i))], meant = to.meant.data<double>()[at(i)];
              // Half a step of whole numbers; of E4M3, half of the last of three bits, or half of the least number.
              const double bound = codes == DType::i8 ? step / 2 : std::max(std::abs(value) / 16, step * 0x1p-10);
              ASSERT_LE(std::abs(meant - value), bound * (1 + 1e-5));
            }
          }
      }
}

TEST_F(HeadCodes, append_to_a_cache_and_touch_nothing_else) {
  const Tensor x = random({3, kKvHeads * 8}, DType::bf16, 1);
  const Tensor codes = empty({6, kKvHeads * 8}, DType::i8), scales = empty({kKvHeads, 6}, DType::f32);
  std::memset(codes.raw(), 99, static_cast<size_t>(codes.bytes()));
  for (int64_t i = 0; i < scales.numel(); ++i) scales.data<float>()[i] = 7;
  run(EncodeHeads{.from = rows(x),
                  .to = rows(codes),
                  .scales = scales,
                  .first = 2,
                  .tokens = 3,
                  .num_heads = kKvHeads,
                  .head_dim = 8});
  const Cached alone = cached(x, 8, DType::i8);
  expect_same_bits(codes.slice(2, 5), alone.codes);
  for (const int64_t t : {0, 1, 5}) {
    for (int64_t i = 0; i < codes.dim(1); ++i) EXPECT_EQ(codes.data<int8_t>()[t * codes.dim(1) + i], 99);
    for (int64_t h = 0; h < kKvHeads; ++h) EXPECT_EQ(scales.data<float>()[h * 6 + t], 7);
  }
  for (int64_t t = 0; t < 3; ++t)
    for (int64_t h = 0; h < kKvHeads; ++h)
      EXPECT_EQ(scales.data<float>()[h * 6 + 2 + t], alone.scales.data<float>()[h * 3 + t]);
}

TEST_F(HeadCodes, of_zeros_are_zeros_and_what_is_not_finite_stays_so) {
  for (const DType dtype : {DType::i8, DType::u8}) {
    const Tensor x = random({4, kKvHeads * 4}, DType::f32, 1);
    float* values = x.data<float>();
    for (int64_t i = 0; i < 4; ++i) values[i] = 0;                           // token 0, head 0
    values[8] = std::numeric_limits<float>::quiet_NaN();                     // token 1, head 0
    values[16 + 1] = -std::numeric_limits<float>::infinity();                // token 2, head 0
    for (int64_t i = 24; i < 28; ++i) values[i] = i % 2 ? 1e-44f : -1e-44f;  // token 3, head 0: subnormal
    const Cached to = cached(x, 4, dtype);
    EXPECT_EQ(scale(to, 0, 0), 0);
    EXPECT_TRUE(std::isnan(scale(to, 1, 0)));
    EXPECT_TRUE(std::isnan(scale(to, 2, 0)));
    for (int64_t i = 24; i < 28; ++i) EXPECT_LE(std::abs(to.meant.data<double>()[i]), 1.1e-44);
    EXPECT_GT(scale(to, 1, 1), 0);  // the other head of the token
  }
}

TEST_F(HeadCodes, attention_reads_what_they_stand_for) {
  for_each_instruction_set([&] {
    for (const DType dtype : kCpuDTypes)
      for (const DType codes : {DType::i8, DType::u8, DType::f16, DType::bf16, DType::f32}) {
        if (codes == dtype) continue;
        const bool special = dtype == DType::bf16;
        const Sequence of = sequence(70, 21, dtype, codes, special);
        for (const int64_t queries : {1, 70}) {
          const Attention op = last(of, queries, 70);
          run(op);
          Attention exact = op;
          exact.q.base = wide(of.q), exact.k = rows(of.k.meant), exact.v = rows(of.v.meant);
          exact.out = empty(op.out.shape(), DType::f64), exact.lse = empty(op.lse.shape(), DType::f64);
          exact.k_scales = exact.v_scales = {};
          if (of.sinks) exact.sinks = wide(of.sinks);
          reference::run(exact);
          // Queries of keys in i8 are rounded, too, by half of 1 in 16383 of their largest value.
          const double noise = codes == DType::i8 ? 2e-3 : 2e-5;
          expect_rounded(op.out, exact.out, noise);
          expect_close(op.lse, exact.lse, 1e-5, noise);
          if (is_float(codes)) continue;
          Attention same = op;
          same.q.base = wide(of.q), same.sinks = exact.sinks;
          same.out = exact.out, same.lse = exact.lse;
          reference::run(same);
          expect_rounded(op.out, same.out, 2e-5);
          expect_close(op.lse, same.lse, 1e-5, 1e-5);
        }
      }
  });
}

TEST_F(HeadCodes, a_query_has_the_bits_that_it_has_in_its_sequence) {
  if (tested_backend() == "cuda") GTEST_SKIP() << "a rule of the CPU kernels";
  for_each_instruction_set([&] {
    for (const DType codes : {DType::i8, DType::u8, DType::f16}) {
      const bool special = codes == DType::u8;
      const Sequence of = sequence(135, special ? 20 : 77, DType::bf16, codes, special);
      const Attention whole = last(of, 135, 135);
      run(whole);
      for (const int64_t end : {1, 33, 135})
        for (const int64_t count : {1, 3, 9, 40}) {
          if (count > end) continue;
          const Attention part = last(of, count, end);
          run(part);
          expect_same_bits(part.out, whole.out.slice(end - count, end));
        }
    }
  });
}

TEST_F(HeadCodes, bits_do_not_depend_on_the_number_of_threads) {
  const Sequence of = sequence(90, 64, DType::bf16, DType::i8, false);
  const Attention one = last(of, 2, 90), three = last(of, 2, 90);
  {
    const ThreadCount guard(1);
    run(one);
  }
  const ThreadCount guard(3);
  run(three);
  expect_same_bits(one.out, three.out);
}

TEST_F(HeadCodes, without_scales_or_room_are_refused) {
  const Sequence of = sequence(5, 8, DType::f32, DType::i8, false);
  Attention op = last(of, 1, 5);
  op.v_scales = {};
  EXPECT_THROW(run(op), ShapeError);
  op = last(of, 1, 5), op.k_scales = empty({kKvHeads, 4}, DType::f32);
  EXPECT_THROW(run(op), ShapeError);
  op = last(of, 1, 5), op.v.base = empty(of.v.codes.shape(), DType::u8);  // not the dtype of the keys
  EXPECT_THROW(run(op), ShapeError);
  const Sequence floats = sequence(5, 8, DType::f32, DType::f16, false);
  op = last(floats, 1, 5), op.k_scales = op.v_scales = of.k.scales;
  EXPECT_THROW(run(op), ShapeError);
  EncodeHeads encode{.from = rows(of.q),
                     .to = rows(of.k.codes),
                     .scales = of.k.scales,
                     .first = 3,
                     .tokens = 3,
                     .num_heads = kKvHeads,
                     .head_dim = 8};
  EXPECT_THROW(run(encode), ShapeError);
  encode.first = 2, encode.to.base = of.q;
  EXPECT_THROW(run(encode), ShapeError);
}

}  // namespace
}  // namespace nought::head_codes_test
