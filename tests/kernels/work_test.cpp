#include "nought/kernels/work.h"

#include "support/operation_samples.h"

namespace nought::work_test {
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

TEST_F(WorkOf, pieces_of_attention_count_what_the_whole_does) {
  AttentionShape s{.num_heads = 2, .num_kv_heads = 1, .head_dim = 4, .spans = {{0, 100, 0, 100}}};
  const double whole = s.product_flops();
  EXPECT_EQ(whole, 2.0 * 2 * 4 * (100 * 100 / 2));
  double sum = 0;
  for (const auto& [begin, end] : {Interval{0, 30}, {30, 37}, {37, 100}}) {
    s.spans = {{0, 45, begin, end - begin, -begin}, {45, 55, begin, end - begin, 45 - begin}};
    sum += s.product_flops();
  }
  EXPECT_EQ(sum, whole);
}

TEST_F(WorkOf, what_an_update_reads_and_writes_counts_twice) {
  const Tensor state = empty({10}, DType::f32), gradient = empty({10}, DType::bf16);
  EXPECT_EQ(work_of(Adam{.parameter = state, .exp_avg = state, .exp_avg_sq = state, .gradient = gradient}).bytes,
            2 * 3 * 40 + 20);
}

TEST_F(WorkOf, rows_that_ids_name_count_and_the_rest_of_the_table_does_not) {
  const Tensor table = empty({1000, 4}, DType::bf16), ids = empty({5}, DType::i32), out = empty({5, 4}, DType::bf16);
  EXPECT_EQ(work_of(Embedding{.table = table, .ids = ids, .out = out}).bytes, 2 * 20 + 4 * 5 + 2 * 20);
  EXPECT_EQ(work_of(Embedding{.table = table, .ids = ids, .out = out, .accumulate = true}).bytes,
            2 * 20 + 4 * 5 + 2 * 2 * 20);
  EXPECT_EQ(work_of(GatherRows{.x = table, .index = ids, .out = out}).bytes, 2 * 20 + 4 * 5 + 2 * 20);
  const Tensor two = empty({5, 2}, DType::i32), weights = empty({5, 2}, DType::f32);
  EXPECT_EQ(work_of(CombineRows{.x = table, .index = two, .out = out, .weights = weights}).bytes,
            2 * 40 + 4 * 10 + 4 * 10 + 2 * 20);
}

TEST_F(WorkOf, a_tables_gradient_is_written_whole_or_added_to_where_ids_are) {
  const Tensor d_out = empty({5, 4}, DType::bf16), ids = empty({5}, DType::i32), wide = empty({1000, 4}, DType::f32);
  EXPECT_EQ(work_of(EmbeddingBackward{.d_out = d_out, .ids = ids, .d_table = wide}).bytes, 2 * 20 + 4 * 5 + 4 * 4000);
  EXPECT_EQ(work_of(EmbeddingBackward{.d_out = d_out, .ids = ids, .d_table = wide, .accumulate = true}).bytes,
            2 * 20 + 4 * 5 + 2 * 4 * 20);
}

TEST_F(WorkOf, heads_count_what_they_cover_of_a_wider_row) {
  const Heads heads{.base = empty({3, 100}, DType::f32), .token_stride = 100};
  CopyHeads copy{.from = heads, .to = heads, .tokens = 3, .num_heads = 2, .head_dim = 4};
  EXPECT_EQ(work_of(copy).bytes, 4 * (24 + 24));
  copy.broadcast = copy.accumulate = true;
  EXPECT_EQ(work_of(copy).bytes, 4 * (12 + 2 * 24));
  const Tensor table = empty({50, 1}, DType::f32), positions = empty({3}, DType::i32);
  const Rope rope{
      .x = heads, .cos = table, .sin = table, .positions = positions, .num_heads = 2, .head_dim = 4, .rotary_dim = 2};
  EXPECT_EQ(work_of(rope).bytes, 2 * 4 * 12 + 4 * 3);
}

TEST_F(WorkOf, logits_count_twice_where_their_gradient_takes_their_place) {
  CrossEntropy op{
      .logits = empty({3, 5}, DType::bf16), .targets = empty({3}, DType::i32), .loss = empty({3}, DType::f32)};
  EXPECT_EQ(work_of(op).bytes, 2 * 15 + 4 * 3 + 4 * 3);
  op.gradient = true;
  EXPECT_EQ(work_of(op).bytes, 2 * 2 * 15 + 4 * 3 + 4 * 3);
}

TEST_F(WorkOf, only_products_attentions_and_delta_rules_count_floating_point_operations) {
  std::vector<std::string> counted;
  test::for_each_sample(*memory_, [&](const test::AnyOperation& op) {
    const Work work = op.work();
    EXPECT_GT(work.bytes, 0) << operation_name(op);
    if (work.flops > 0) counted.emplace_back(operation_name(op));
  });
  EXPECT_EQ(counted, (std::vector<std::string>{"MatMul", "Attention", "AttentionBackward", "DeltaRule",
                                               "DeltaRuleBackward", "MatMul"}))
      << "the last one multiplies by codes";
}

}  // namespace
}  // namespace nought::work_test
