#include "nought/kernels/cpu/attention.h"

#include <string>
#include <vector>

#include "support/attention_cases.h"
#include "support/kernel_test.h"
#include "support/size.h"

namespace nought::attention_test {
namespace {

using namespace test;

/// One attention problem with q, k and v in one packed row per token, as a fused projection leaves them.
struct Problem {
  AttentionShape shape;
  Tensor qkv, out, lse, d_out, d_qkv;
  Tensor sinks, d_sinks;  // undefined without sinks

  Problem(Memory& memory, const AttentionShape& problem_shape, DType dtype, bool with_sinks = false)
      : shape(problem_shape) {
    const AttentionShape& s = shape;
    const DType statistics = dtype == DType::f64 ? DType::f64 : DType::f32;
    qkv = random_tensor(memory, {tokens(), width()}, dtype, 1);
    d_qkv = random_tensor(memory, {tokens(), width()}, dtype, 2);
    out = random_tensor(memory, {s.batch * s.q_length, s.num_heads * s.value_dim()}, dtype, 3);
    d_out = random_tensor(memory, out.shape(), dtype, 4);
    lse = random_tensor(memory, {s.batch, s.num_heads, s.q_length}, statistics, 5);
    if (!with_sinks) return;
    sinks = random_tensor(memory, {s.num_heads}, dtype, 6, 2);
    d_sinks = random_tensor(memory, {s.num_heads}, statistics, 7);
  }
  /// The inputs in f64.
  Problem exact(Memory& memory) const {
    Problem copy = *this;
    for (Tensor* x : {&copy.qkv, &copy.out, &copy.lse, &copy.d_out, &copy.d_qkv, &copy.sinks, &copy.d_sinks})
      if (*x) *x = converted(memory, *x, DType::f64);
    return copy;
  }

  int64_t tokens() const { return shape.batch * std::max(shape.q_length, shape.k_length); }
  int64_t width() const {
    return (shape.num_heads + shape.num_kv_heads) * shape.head_dim + shape.num_kv_heads * shape.value_dim() + 3;
  }
  Heads heads(const Tensor& base, int64_t first_head) const { return {base, first_head * shape.head_dim + 1, width()}; }
  Attention forward() const {
    const int64_t h = shape.num_heads, kv = shape.num_kv_heads;
    return {shape, heads(qkv, 0), heads(qkv, h), heads(qkv, h + kv), out, lse, sinks};
  }
  AttentionBackward backward() const {
    const int64_t h = shape.num_heads, kv = shape.num_kv_heads;
    return {.shape = shape,
            .q = heads(qkv, 0),
            .k = heads(qkv, h),
            .v = heads(qkv, h + kv),
            .out = out,
            .lse = lse,
            .d_out = d_out,
            .dq = heads(d_qkv, 0),
            .dk = heads(d_qkv, h),
            .dv = heads(d_qkv, h + kv),
            .sinks = sinks,
            .d_sinks = d_sinks};
  }
  std::string str() const {
    const AttentionShape& s = shape;
    return fmt::format(
        "{} batch {}, {} queries of {} heads, {} keys of {} heads, head_dim {}, value_dim {}, window {}, "
        "softcap {}{}{}",
        name_of(out.dtype()), s.batch, s.q_length, s.num_heads, s.k_length, s.num_kv_heads, s.head_dim, s.value_dim(),
        s.window, s.softcap, s.causal ? ", causal" : "", sinks ? ", sinks" : "");
  }
};

class AttentionTest : public ::testing::Test {
 protected:
  /// Forward and backward agree with the f64 result but for fp32 arithmetic and one rounding; where dot products of
  /// bf16 are taken, also for the rounding of probabilities and of the scores' gradients, whose sums these noises
  /// bound.
  void expect_agreement(const AttentionShape& shape, DType dtype, bool with_sinks = false) const {
    const Problem problem(*memory_, shape, dtype, with_sinks);
    SCOPED_TRACE(problem.str());
    Problem oracle = problem.exact(*memory_);
    run(problem.forward());
    reference::run(oracle.forward());
    const bool dots = rounds_probabilities(shape, dtype);
    const double step = unit_roundoff(dtype) * (tested_backend() == "cpu" ? 1 : 2);
    const double noise = 1e-5, value_noise = dots ? step / 4 * largest_magnitude(oracle.qkv) : noise;
    expect_rounded(problem.out, oracle.out, value_noise);
    expect_close(problem.lse, oracle.lse, 1e-5, noise);

    oracle.out = converted(*memory_, problem.out, DType::f64);  // backward reads the rounded output
    run(problem.backward());
    reference::run(oracle.backward());
    const double largest = largest_magnitude(oracle.d_qkv);
    expect_rounded(problem.d_qkv, oracle.d_qkv, (dots ? step / 2 : 1e-5) * largest);
    if (with_sinks) {
      expect_rounded(problem.d_sinks, oracle.d_sinks, 1e-5 * largest_magnitude(oracle.d_sinks));
    }
  }
  static double largest_magnitude(const Tensor& x) {
    double largest = 1;
    for (const double value : x.to_vector<double>()) largest = std::max(largest, std::abs(value));
    return largest;
  }
  std::shared_ptr<Memory> memory_ = Memory::create();
};

AttentionShape self_attention(int64_t length, int64_t heads, int64_t kv_heads, int64_t head_dim) {
  return {.batch = 2,
          .q_length = length,
          .k_length = length,
          .num_heads = heads,
          .num_kv_heads = kv_heads,
          .head_dim = head_dim,
          .scale = 1 / std::sqrt(static_cast<double>(head_dim))};
}

NOUGHT_SIZE(medium);
TEST_F(AttentionTest, cpu_agrees_with_exact_attention_for_all_lengths_and_head_dims) {
  constexpr int64_t kGroups[][2] = {{2, 2}, {2, 1}, {4, 1}, {3, 1}};  // heads, key/value heads
  size_t turn = 0;
  for (const int64_t length : {1, 5, 24, 37, 64, 100, 129}) {
    for (const int64_t head_dim : {8, 10, 12, 16, 64, 80, 128}) {
      const auto& [heads, kv_heads] = kGroups[turn % 4];
      if (takes_case(static_cast<int64_t>(turn), 8))
        expect_agreement(self_attention(length, heads, kv_heads, head_dim), kCpuDTypes[turn % 3]);
      ++turn;
    }
  }
}

NOUGHT_SIZE(medium);
TEST_F(AttentionTest, cpu_agrees_for_every_group_dtype_and_mask) {
  int64_t turn = 0;
  for (const DType dtype : kCpuDTypes) {
    for (const int64_t kv_heads : {6, 3, 2, 1}) {
      for (const int64_t window : {0, 1, 20}) {
        for (const bool causal : {true, false}) {
          AttentionShape shape = self_attention(75, 6, kv_heads, 12);
          shape.window = window;
          shape.causal = causal;
          if (takes_case(turn++, 17)) expect_agreement(shape, dtype);
        }
      }
    }
  }
}

NOUGHT_SIZE(medium);
TEST_F(AttentionTest, queries_sit_at_the_end_of_the_keys) {
  int64_t turn = 0;
  for (const auto& [q_length, k_length] :
       {std::pair<int64_t, int64_t>{1, 1}, {1, 100}, {3, 64}, {37, 129}, {70, 200}}) {
    for (const int64_t window : {0, 33, 64}) {
      AttentionShape shape = self_attention(q_length, 4, 2, 16);
      shape.k_length = k_length;
      shape.window = window;
      if (takes_case(turn++, 7)) expect_agreement(shape, DType::f32);
      if (takes_case(turn++, 7)) expect_agreement(shape, DType::bf16);
    }
  }
}

NOUGHT_SIZE(medium);
TEST_F(AttentionTest, few_queries_of_a_long_cache_agree_on_every_instruction_set) {
  for_each_instruction_set([&] {
    int64_t turn = 0;
    for (const DType dtype : kCpuDTypes) {
      for (const int64_t q_length : {1, 2, 3, 4, 9}) {
        AttentionShape shape = self_attention(q_length, 2, 1, 42);
        shape.batch = q_length == 1 ? 2 : 1;
        shape.k_length = 603;
        shape.window = q_length % 2 == 0 ? 300 : 0;
        shape.v_head_dim = q_length == 3 ? 77 : 0;
        if (!takes_case(turn++, 8)) continue;
        expect_agreement(shape, dtype, /*with_sinks=*/q_length == 4);
      }
    }
  });
}

TEST_F(AttentionTest, scores_that_grow_from_block_to_block_agree_on_every_instruction_set) {
  for_each_instruction_set([&] {
    const AttentionShape shape = self_attention(300, 2, 1, 16);
    const Problem problem(*memory_, shape, DType::f32);
    float* values = problem.qkv.data<float>();
    for (int64_t i = 0; i < problem.qkv.numel(); ++i) {
      const int64_t token = i / problem.width() % 300, column = i % problem.width();
      if (column < 3 * 16 + 1) values[i] = std::abs(values[i]) * static_cast<float>(1 + token) / 100;
    }
    const Problem oracle = problem.exact(*memory_);
    run(problem.forward());
    reference::run(oracle.forward());
    expect_close(problem.out, oracle.out, 1e-5, 1e-5 * largest_magnitude(oracle.qkv));
    expect_close(problem.lse, oracle.lse, 1e-5, 1e-5);
  });
}

TEST_F(AttentionTest, a_scale_below_zero_prefers_what_is_least_alike) {
  int64_t turn = 0;
  for (const DType dtype : kCpuDTypes) {
    for (const int64_t length : {3, 100}) {
      AttentionShape shape = self_attention(length, 4, 2, 16);
      shape.scale = -2;
      if (takes_case(turn++, 3)) expect_agreement(shape, dtype);
    }
  }
}

TEST_F(AttentionTest, more_queries_than_keys_attend_without_a_mask) {
  AttentionShape shape = self_attention(70, 2, 1, 24);
  shape.k_length = 9;
  shape.causal = false;
  expect_agreement(shape, DType::f32);
}

NOUGHT_SIZE(medium);
TEST_F(AttentionTest, a_long_group_spans_several_panels) {
  if (!takes_case(1, 2)) GTEST_SKIP() << "too long";
  expect_agreement(self_attention(300, 4, 1, 8), DType::f32);
}

NOUGHT_SIZE(medium);
TEST_F(AttentionTest, values_may_be_narrower_or_wider_than_keys) {
  int64_t turn = 1;
  for (const auto& [head_dim, v_head_dim] : {std::pair<int64_t, int64_t>{24, 16}, {16, 24}, {192, 128}, {7, 3}}) {
    AttentionShape shape = self_attention(75, 4, 2, head_dim);
    shape.v_head_dim = v_head_dim;
    for (const DType dtype : kCpuDTypes)
      if (takes_case(turn++, 5)) expect_agreement(shape, dtype);
  }
}

NOUGHT_SIZE(medium);
TEST_F(AttentionTest, capped_scores_and_sinks_agree_for_every_dtype_and_mask) {
  int64_t turn = 4;
  for (const DType dtype : kCpuDTypes) {
    for (const double softcap : {0.0, 0.5, 30.0}) {
      for (const bool with_sinks : {false, true}) {
        for (const int64_t window : {0, 20}) {
          AttentionShape shape = self_attention(75, 4, 2, 12);
          shape.softcap = softcap;
          shape.window = window;
          shape.scale *= 4;  // so that scores reach the cap
          if (takes_case(turn++, 7)) expect_agreement(shape, dtype, with_sinks);
        }
      }
    }
  }
}

NOUGHT_SIZE(medium);
TEST_F(AttentionTest, a_sink_over_several_panels_and_batches_sums_all_its_rows) {
  if (!takes_case(1, 2)) GTEST_SKIP() << "too long";
  expect_agreement(self_attention(300, 4, 1, 8), DType::f32, /*with_sinks=*/true);
}

NOUGHT_SIZE(medium);
TEST_F(AttentionTest, every_instruction_set_agrees_with_exact_attention) {
  if (tested_backend() != "cpu") GTEST_SKIP() << "there is one";
  for_each_instruction_set([&] {
    for (const DType dtype : kCpuDTypes) {
      AttentionShape shape = self_attention(70, 4, 2, 37);
      expect_agreement(shape, dtype);
      shape.softcap = 2;
      shape.v_head_dim = 13;
      expect_agreement(shape, dtype, /*with_sinks=*/true);
    }
  });
}

TEST_F(AttentionTest, a_query_that_sees_only_its_sink_yields_zero) {
  AttentionShape shape = self_attention(4, 1, 1, 8);
  shape.k_length = 2;
  const Problem problem(*memory_, shape, DType::f32, /*with_sinks=*/true);
  run(problem.forward());
  for (int64_t i = 0; i < 2; ++i) {
    EXPECT_EQ(problem.lse.data<float>()[i], problem.sinks.data<float>()[0]);
    for (int64_t j = 0; j < 8; ++j) EXPECT_EQ(problem.out.data<float>()[i * 8 + j], 0);
  }
}

TEST_F(AttentionTest, gradients_of_sinks_can_be_added) {
  const Problem problem(*memory_, self_attention(9, 4, 2, 8), DType::bf16, /*with_sinks=*/true);
  const Tensor before = cloned(*memory_, problem.d_sinks);
  run(problem.forward());
  AttentionBackward backward = problem.backward();
  run(backward);
  const Tensor once = cloned(*memory_, problem.d_sinks);
  copy(before, problem.d_sinks);
  backward.accumulate_sinks = true;
  run(backward);
  for (int64_t h = 0; h < 4; ++h)
    EXPECT_NEAR(problem.d_sinks.data<float>()[h], before.data<float>()[h] + once.data<float>()[h], 1e-6);
}

TEST_F(AttentionTest, a_query_that_sees_nothing_yields_zero_and_no_gradient) {
  AttentionShape shape = self_attention(4, 1, 1, 8);
  shape.k_length = 2;  // the first two queries come before all keys
  const Problem problem(*memory_, shape, DType::f32);
  run(problem.forward());
  run(problem.backward());
  for (int64_t i = 0; i < 2; ++i) {
    EXPECT_EQ(problem.lse.data<float>()[i], -std::numeric_limits<float>::infinity());
    for (int64_t j = 0; j < 8; ++j) {
      EXPECT_EQ(problem.out.data<float>()[i * 8 + j], 0);
      EXPECT_EQ(problem.d_qkv.data<float>()[1 + i * problem.width() + j], 0);
    }
  }
}

TEST_F(AttentionTest, scores_far_apart_stay_finite) {
  AttentionShape shape = self_attention(100, 2, 2, 16);
  shape.scale = 300;
  const Problem problem(*memory_, shape, DType::f32), oracle = problem.exact(*memory_);
  run(problem.forward());
  reference::run(oracle.forward());
  expect_close(problem.out, oracle.out, 0, 2e-2);  // a score of thousands carries an fp32 error of about 1e-3
  expect_close(problem.lse, oracle.lse, 1e-5, 0);
}

TEST_F(AttentionTest, a_nan_is_not_hidden) {
  const Problem problem(*memory_, self_attention(5, 1, 1, 8), DType::f32);
  problem.qkv.data<float>()[1] = std::numeric_limits<float>::quiet_NaN();  // the first query's first element
  run(problem.forward());
  EXPECT_TRUE(std::isnan(problem.out.data<float>()[0]));
  EXPECT_FALSE(std::isnan(problem.out.data<float>()[8]));
}

TEST_F(AttentionTest, nothing_outside_of_the_heads_is_written) {
  const Problem problem(*memory_, self_attention(9, 2, 1, 10), DType::bf16);
  const Tensor before = cloned(*memory_, problem.d_qkv);
  run(problem.forward());
  run(problem.backward());
  for (int64_t token = 0; token < problem.tokens(); ++token) {
    for (const int64_t gap : {int64_t{0}, problem.width() - 2, problem.width() - 1}) {
      const int64_t at = token * problem.width() + gap;
      EXPECT_EQ(problem.d_qkv.data<bf16_t>()[at].bits, before.data<bf16_t>()[at].bits);
    }
  }
}

NOUGHT_SIZE(medium);
TEST_F(AttentionTest, the_number_of_threads_changes_no_bit) {
  if (tested_backend() != "cpu") GTEST_SKIP() << "threads of the host do not compute";
  for (const DType dtype : {DType::f32, DType::bf16}) {
    AttentionShape shape = self_attention(333, 4, 2, 40);
    shape.window = 150;
    std::vector<Problem> problems;
    for (const int threads : {1, 2, 4}) {
      const ThreadCount guard(threads);
      problems.emplace_back(*memory_, shape, dtype, /*with_sinks=*/true);
      run(problems.back().forward());
      run(problems.back().backward());
      expect_same_bits(problems.back().out, problems.front().out);
      expect_same_bits(problems.back().lse, problems.front().lse);
      expect_same_bits(problems.back().d_qkv, problems.front().d_qkv);
      expect_same_bits(problems.back().d_sinks, problems.front().d_sinks);
    }
  }
}

NOUGHT_SIZE(medium);
TEST_F(AttentionTest, reference_gradients_are_those_of_central_differences) {
  for (const bool causal : {true, false}) {
    AttentionShape shape = self_attention(5, 4, 2, 3);
    shape.k_length = 7;
    shape.window = 4;
    shape.causal = causal;
    for (const bool with_sinks : {false, true}) {
      shape.softcap = with_sinks ? 1.5 : 0;
      shape.v_head_dim = with_sinks ? 2 : 0;
      const Problem problem(*memory_, shape, DType::f64, with_sinks);
      zero(problem.d_qkv);
      reference::run(problem.forward());
      reference::run(problem.backward());
      const auto loss = [&] {
        reference::run(problem.forward());
        return dot(problem.out, problem.d_out);
      };
      EXPECT_LT(gradient_error(problem.qkv, problem.d_qkv, loss), 1e-7);
      if (with_sinks) {
        EXPECT_LT(gradient_error(problem.sinks, problem.d_sinks, loss), 1e-7);
      }
    }
  }
}

TEST_F(AttentionTest, f64_runs_the_reference) {
  if (tested_backend() == "cuda") GTEST_SKIP() << "it has kernels for f64";
  const Problem ours(*memory_, self_attention(6, 2, 1, 4), DType::f64), oracle = ours.exact(*memory_);
  run(ours.forward());
  run(ours.backward());
  reference::run(oracle.forward());
  reference::run(oracle.backward());
  expect_same_bits(ours.out, oracle.out);
  expect_same_bits(ours.d_qkv, oracle.d_qkv);
}

TEST_F(AttentionTest, tensors_that_do_not_fit_are_errors) {
  const Problem problem(*memory_, self_attention(6, 4, 2, 8), DType::f32);
  Attention op = problem.forward();
  op.shape.num_kv_heads = 3;
  EXPECT_THROW(run(op), ShapeError);
  op = problem.forward();
  op.v.offset += problem.width();
  EXPECT_THROW(run(op), ShapeError);
  op = problem.forward();
  op.lse = op.out;
  EXPECT_THROW(reference::run(op), ShapeError);
  op = problem.forward();
  op.shape.v_head_dim = 9;
  EXPECT_THROW(run(op), ShapeError);
  op = problem.forward();
  op.sinks = op.lse;
  EXPECT_THROW(run(op), ShapeError);
  AttentionBackward backward = problem.backward();
  backward.dq.token_stride = 1;
  EXPECT_THROW(run(backward), ShapeError);
}

}  // namespace
}  // namespace nought::attention_test
