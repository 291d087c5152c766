#include "nought/kernels/work.h"

#include "support/kernel_test.h"

namespace nought {
namespace {

using test::KernelTest;

class WorkOf : public KernelTest {};

TEST_F(WorkOf, products_count_each_multiplication_and_addition) {
  const Tensor a = empty({3, 5}, DType::bf16), b = empty({7, 5}, DType::bf16), c = empty({3, 7}, DType::f32);
  MatMul product{.a = a, .b = b, .c = c, .transpose_b = true};
  EXPECT_EQ(work_of(product).flops, 2 * 3 * 7 * 5);
  EXPECT_EQ(work_of(product).bytes, 2 * 15 + 2 * 35 + 4 * 21);
  product.accumulate = true;
  EXPECT_EQ(work_of(product).bytes, 2 * 15 + 2 * 35 + 2 * 4 * 21);  // c is read too
  EXPECT_EQ(work_of(MatMul{.a = c, .b = empty({3, 2}, DType::f32), .c = empty({7, 2}, DType::f32), .transpose_a = true})
                .flops,
            2 * 7 * 2 * 3);
}

TEST_F(WorkOf, causal_attention_counts_half_of_its_scores) {
  const Tensor q = empty({8, 2 * 4}, DType::f32), k = empty({8, 4}, DType::f32), v = empty({8, 4}, DType::f32);
  Attention op{.shape = {.batch = 2, .q_length = 4, .k_length = 4, .num_heads = 2, .num_kv_heads = 1, .head_dim = 4},
               .q = {q, 0, 8},
               .k = {k, 0, 4},
               .v = {v, 0, 4},
               .out = empty({8, 8}, DType::f32),
               .lse = empty({2, 8}, DType::f32)};
  const double scores = 2 * 2 * (4 * 4) * 4;  // sequences, heads, pairs, head_dim
  EXPECT_EQ(work_of(op).flops, 2 * scores);
  EXPECT_EQ(work_of(op).bytes, 4 * (64 + 32 + 32 + 64 + 16));
  op.shape.causal = false;
  EXPECT_EQ(work_of(op).flops, 4 * scores);
}

TEST_F(WorkOf, what_an_update_reads_and_writes_counts_twice) {
  const Tensor state = empty({10}, DType::f32), gradient = empty({10}, DType::bf16);
  EXPECT_EQ(work_of(Adam{.parameter = state, .exp_avg = state, .exp_avg_sq = state, .gradient = gradient}).bytes,
            2 * 3 * 40 + 20);
}

}  // namespace
}  // namespace nought
