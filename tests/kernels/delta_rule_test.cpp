// The gated delta rule: chunks beside one step at a time, states, and gradients by central differences.
#include "nought/kernels/ops/delta_rule.h"

#include "support/kernel_test.h"
#include "support/size.h"

namespace nought::delta_rule_test {
namespace {

using namespace test;

class DeltaRules : public KernelTest {
 protected:
  DeltaRule make(const DeltaShape& shape, std::vector<StateSpan> spans, DType dtype) {
    const int64_t tokens = spans.back().begin + spans.back().length;
    return {.shape = shape,
            .qkv = random({tokens, shape.width()}, dtype, 1),
            .ba = random({tokens, 2 * shape.value_heads}, dtype, 2),
            .a_log = random({shape.value_heads}, dtype, 3),
            .dt_bias = random({shape.value_heads}, dtype, 4),
            .out = random({tokens, shape.values()}, dtype, 5),
            .spans = std::move(spans)};
  }
  DeltaRule widened(const DeltaRule& op) {
    DeltaRule copy = op;
    for (Tensor* each : {&copy.qkv, &copy.ba, &copy.a_log, &copy.dt_bias, &copy.out, &copy.states})
      if (*each) *each = wide(*each);
    return copy;
  }
  DeltaRuleBackward backward_of(const DeltaRule& op, DType gradients, bool accumulate) {
    const DType dtype = op.qkv.dtype();
    return {.shape = op.shape,
            .qkv = op.qkv,
            .ba = op.ba,
            .a_log = op.a_log,
            .dt_bias = op.dt_bias,
            .d_out = random(op.out.shape(), dtype, 6),
            .d_qkv = random(op.qkv.shape(), dtype, 7),
            .d_ba = random(op.ba.shape(), dtype, 8),
            .d_a_log = random(op.a_log.shape(), gradients, 9),
            .d_dt_bias = random(op.dt_bias.shape(), gradients, 10),
            .spans = op.spans,
            .accumulate_weight = accumulate};
  }
  DeltaRuleBackward widened(const DeltaRuleBackward& op) {
    DeltaRuleBackward copy = op;
    for (Tensor* each : {&copy.qkv, &copy.ba, &copy.a_log, &copy.dt_bias, &copy.d_out, &copy.d_qkv, &copy.d_ba,
                         &copy.d_a_log, &copy.d_dt_bias})
      *each = wide(*each);
    return copy;
  }
};

/// Heads that are no whole vectors; spans of less than a chunk, of one and of more.
const DeltaShape kOdd{.key_heads = 2, .value_heads = 6, .key_dim = 5, .value_dim = 19};
const std::vector<StateSpan> kSpans{{0, 7}, {7, 64}, {71, 1}, {72, 131}};

TEST_F(DeltaRules, chunks_give_what_single_steps_give_in_every_dtype) {
  for_each_instruction_set([&] {
    for (const DType dtype : kCpuDTypes) {
      DeltaRule op = make(kOdd, kSpans, dtype);
      op.states = random({4, 6, 5, 19}, DType::f32, 11);
      for (size_t i = 0; i < op.spans.size(); ++i)
        op.spans[i].state = static_cast<int64_t>(3 - i), op.spans[i].continues = i % 2 == 0;
      const DeltaRule expected = widened(op);
      run(op), reference::run(expected);
      expect_rounded(op.out, expected.out, 1e-5);
      expect_close(op.states, expected.states, 1e-5, 1e-5);
    }
  });
}

NOUGHT_SIZE(medium);
TEST_F(DeltaRules, chunks_stay_within_1e_5_of_single_steps_over_4096_tokens) {
  const DeltaRule op =
      make({.key_heads = 1, .value_heads = 1, .key_dim = 32, .value_dim = 32}, {{0, 4096}}, DType::f32);
  run(Fill{.x = op.a_log, .value = -3});  // it forgets slowly
  const DeltaRule expected = widened(op);
  run(op), reference::run(expected);
  EXPECT_LE(max_abs_difference(op.out, expected.out), 1e-5);
}

NOUGHT_SIZE(medium);  // 20 seconds of the sanitizers
TEST_F(DeltaRules, gradients_of_chunks_are_those_of_single_steps_in_every_dtype) {
  for_each_instruction_set([&] {
    for (const DType dtype : kCpuDTypes)
      for (const bool accumulate : {false, true}) {
        const DeltaRuleBackward op =
            backward_of(make(kOdd, kSpans, dtype), accumulate ? DType::f32 : dtype, accumulate);
        const DeltaRuleBackward expected = widened(op);
        run(op), reference::run(expected);
        expect_rounded(op.d_qkv, expected.d_qkv, 5e-5);
        expect_rounded(op.d_ba, expected.d_ba, 5e-5);
        expect_rounded(op.d_a_log, expected.d_a_log, 1e-3);
        expect_rounded(op.d_dt_bias, expected.d_dt_bias, 1e-3);
      }
  });
}

TEST_F(DeltaRules, gradients_are_central_differences) {
  const DeltaRule op =
      make({.key_heads = 1, .value_heads = 2, .key_dim = 3, .value_dim = 2}, {{0, 5}, {5, 3}}, DType::f64);
  const DeltaRuleBackward back = backward_of(op, DType::f64, /*accumulate=*/false);
  reference::run(back);
  const auto loss = [&] {
    reference::run(op);
    return dot(op.out, back.d_out);
  };
  EXPECT_LE(gradient_error(op.qkv, back.d_qkv, loss), 1e-7);
  EXPECT_LE(gradient_error(op.ba, back.d_ba, loss), 1e-7);
  EXPECT_LE(gradient_error(op.a_log, back.d_a_log, loss), 1e-7);
  EXPECT_LE(gradient_error(op.dt_bias, back.d_dt_bias, loss), 1e-7);
}

/// A token at a time, and pieces that chunks do not begin with.
TEST_F(DeltaRules, a_sequence_goes_on_from_its_state) {
  DeltaRule whole = make(kOdd, {{0, 150}}, DType::f32);
  run(whole);
  const Tensor states = random({2, 6, 5, 19}, DType::f32, 11), other = clone(states.slice(0, 1));
  const Tensor out = empty(whole.out.shape(), DType::f32);
  for (const Interval piece : {Interval{0, 70}, Interval{70, 71}, Interval{71, 72}, Interval{72, 150}}) {
    DeltaRule op = whole;
    op.qkv = whole.qkv.slice(piece.begin, piece.end), op.ba = whole.ba.slice(piece.begin, piece.end);
    op.out = out.slice(piece.begin, piece.end), op.states = states;
    op.spans = {{0, piece.size(), 1, piece.begin > 0}};
    run(op);
  }
  expect_close(out, whole.out, 0, 1e-6);
  expect_same_bits(states.slice(0, 1), other);
}

TEST_F(DeltaRules, decays_beyond_the_range_of_numbers_forget_and_stay_finite) {
  const DeltaRule op = make(kOdd, {{0, 100}}, DType::f32);
  run(Fill{.x = op.a_log, .value = 6});
  const DeltaRuleBackward back = backward_of(op, DType::f32, false);
  const DeltaRule expected = widened(op);
  const DeltaRuleBackward expected_back = widened(back);
  run(op), reference::run(expected);
  run(back), reference::run(expected_back);
  expect_rounded(op.out, expected.out, 1e-5);
  expect_rounded(back.d_qkv, expected_back.d_qkv, 5e-5);
}

TEST_F(DeltaRules, results_do_not_depend_on_the_number_of_threads) {
  const DeltaRule op = make({.key_heads = 3, .value_heads = 3, .key_dim = 16, .value_dim = 16}, {{0, 200}}, DType::f32);
  const DeltaRuleBackward back = backward_of(op, DType::f32, false);
  std::vector<Tensor> results;
  for (const int threads : {1, 3}) {
    const ThreadCount count(threads);
    run(op), run(back);
    for (const Tensor& each : {op.out, back.d_qkv, back.d_ba, back.d_a_log}) results.push_back(clone(each));
  }
  for (size_t i = 0; i < 4; ++i) expect_same_bits(results[i], results[i + 4]);
}

TEST_F(DeltaRules, value_heads_that_key_heads_do_not_divide_are_refused) {
  EXPECT_THROW(run(make({.key_heads = 2, .value_heads = 3, .key_dim = 2, .value_dim = 2}, {{0, 4}}, DType::f32)),
               ShapeError);
}

}  // namespace
}  // namespace nought::delta_rule_test
