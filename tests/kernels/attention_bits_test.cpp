// A query against a cache has the bits that it has inside its whole sequence, on every instruction set of the CPU.
#include "support/attention_cases.h"
#include "support/kernel_test.h"
#include "support/size.h"

#include "nought/kernels/ops/attention.h"

namespace nought::attention_bits_test {
namespace {

using namespace test;

class AttentionBits : public KernelTest {
 protected:
  struct Rows {
    Tensor q, k, v, sinks;
  };
  Attention forward(const Rows& rows, const AttentionShape& shape, int64_t first_query) {
    const auto heads = [](const Tensor& x, int64_t first) { return Heads{x, first * x.dim(1), x.dim(1)}; };
    return {.shape = shape,
            .q = heads(rows.q, first_query),
            .k = heads(rows.k, 0),
            .v = heads(rows.v, 0),
            .out = empty({shape.q_length, shape.num_heads * shape.value_dim()}, rows.q.dtype()),
            .lse = empty({shape.num_heads * shape.q_length}, DType::f32),
            .sinks = rows.sinks};
  }

  /// The last queries of a prefix of the keys, few and many.
  void expect_bits_of_whole(const AttentionShape& shape, DType dtype, bool with_sinks) {
    const int64_t length = shape.q_length, heads = shape.num_heads, dim = shape.head_dim;
    const auto values = [&](const Shape& of, uint64_t seed) { return random_tensor(*memory_, of, dtype, seed); };
    const Rows rows{values({length, heads * dim}, 1), values({length, shape.num_kv_heads * dim}, 2),
                    values({length, shape.num_kv_heads * shape.value_dim()}, 3),
                    with_sinks ? values({heads}, 4) : Tensor()};
    const Attention whole = forward(rows, shape, 0);
    run(whole);
    for (const int64_t end : {int64_t{1}, int64_t{33}, int64_t{64}, length})
      for (const int64_t count : {1, 3, 9, 40}) {
        if (count > end) continue;
        AttentionShape last = shape;
        last.q_length = count, last.k_length = end;
        const Attention part = forward(rows, last, end - count);
        run(part);
        expect_same_bits(part.out, whole.out.slice(end - count, end));
        for (int64_t i = 0; i < heads * count; ++i)
          ASSERT_EQ(part.lse.data<float>()[i], whole.lse.data<float>()[i / count * length + end - count + i % count]);
      }
  }
};

NOUGHT_SIZE(medium);
TEST_F(AttentionBits, of_a_query_are_those_that_it_has_in_its_sequence) {
  const ThreadCount guard(1);
  for_each_instruction_set([&] {
    int64_t turn = 0;
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const int64_t dim : {20, 77})
        for (const int64_t window : {0, 45}) {
          AttentionShape shape{.batch = 1,
                               .q_length = 135,
                               .k_length = 135,
                               .num_heads = 4,
                               .num_kv_heads = 2,
                               .head_dim = dim,
                               .scale = 0.3};
          shape.window = window;
          shape.softcap = turn % 3 == 1 ? 2 : 0;
          shape.v_head_dim = turn % 4 == 2 ? 36 : 0;
          expect_bits_of_whole(shape, dtype, turn % 2 == 1);
          ++turn;
        }
  });
}

}  // namespace
}  // namespace nought::attention_bits_test
