#include "nought/kernels/arguments.h"

#include "support/kernel_test.h"

namespace nought::arguments_test {
namespace {

class Arguments : public test::KernelTest {};

TEST_F(Arguments, are_tensors_that_are_there_numbers_and_switches_that_are_on) {
  const Tensor a = empty({3, 5}, DType::bf16), b = empty({7, 5}, DType::bf16), c = empty({3, 7}, DType::f32);
  EXPECT_EQ(arguments_of(MatMul{.a = a, .b = b, .c = c, .transpose_b = true}),
            "a bf16[3, 5], b bf16[7, 5], c f32[3, 7], transpose_b");
  EXPECT_EQ(arguments_of(Scale{.x = c, .factor = 0.5}), "x f32[3, 7], factor 0.5, eps 0");
  EXPECT_EQ(arguments_of(Activate{.x = c, .y = c, .activation = Activation::silu}),
            "x f32[3, 7], y f32[3, 7], activation silu");
  EXPECT_EQ(arguments_of(SumTensors{.inputs = {c, c}, .out = c}),
            "an input f32[3, 7], an input f32[3, 7], out f32[3, 7]");
}

TEST_F(Arguments, rows_of_a_wider_tensor_and_rules_are_told_in_short) {
  const Heads heads{.base = empty({3, 24}, DType::f32), .token_stride = 24};
  EXPECT_EQ(arguments_of(SumHeads{.from = heads, .to = heads, .tokens = 3, .num_heads = 2, .head_dim = 4}),
            "from 3 rows in f32[3, 24], to 3 rows in f32[3, 24], tokens 3, num_heads 2, head_dim 4");
  Route route;
  route.logits = empty({5, 4}, DType::f32);
  route.rule = {.top_k = 1, .scores = RouterScores::sigmoid};
  EXPECT_EQ(arguments_of(route),
            "logits f32[5, 4], top_k 1, scores sigmoid, num_groups 1, kept_groups 1, group_score best, scaling 1");
  Attention attention;
  attention.shape = {.batch = 1, .q_length = 3, .k_length = 3, .num_heads = 2, .num_kv_heads = 2, .head_dim = 4};
  attention.shape.spans = {{0, 1, 0, 1}, {1, 2, 1, 2}};
  EXPECT_EQ(arguments_of(attention),
            "batch 1, q_length 3, k_length 3, num_heads 2, num_kv_heads 2, head_dim 4, scale 1, causal, window 0, "
            "softcap 0, v_head_dim 0, spans 2");
}

}  // namespace
}  // namespace nought::arguments_test
