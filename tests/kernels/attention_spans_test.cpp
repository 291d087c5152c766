// Sequences that share tensors (packed documents, parts of a cache) know nothing of each other.
#include <limits>
#include <vector>

#include "support/attention_cases.h"
#include "support/kernel_test.h"

#include "nought/kernels/ops/attention.h"

namespace nought::attention_spans_test {
namespace {

using namespace test;

/// Sequences whose tokens lie one behind the other in q, k, v and all results.
struct Packed {
  AttentionShape shape;
  Tensor q, k, v, out, lse, d_out, dq, dk, dv, sinks, d_sinks;

  Packed(Memory& memory, const AttentionShape& s, DType dtype, bool with_sinks) : shape(s) {
    uint64_t seed = 0;
    const auto rows = [&](int64_t tokens, int64_t heads, int64_t head_dim) {
      return random_tensor(memory, {tokens, heads * head_dim}, dtype, ++seed);
    };
    const int64_t queries = s.q_tokens(), keys = s.k_tokens(), dim = s.head_dim, value_dim = s.value_dim();
    q = rows(queries, s.num_heads, dim), k = rows(keys, s.num_kv_heads, dim), v = rows(keys, s.num_kv_heads, value_dim);
    out = rows(queries, s.num_heads, value_dim), d_out = rows(queries, s.num_heads, value_dim);
    dq = rows(queries, s.num_heads, dim), dk = rows(keys, s.num_kv_heads, dim);
    dv = rows(keys, s.num_kv_heads, value_dim);
    lse = random_tensor(memory, {queries * s.num_heads}, dtype == DType::f64 ? DType::f64 : DType::f32, ++seed);
    if (!with_sinks) return;
    sinks = random_tensor(memory, {s.num_heads}, dtype, ++seed);
    d_sinks = random_tensor(memory, {s.num_heads}, dtype == DType::f64 ? DType::f64 : DType::f32, ++seed);
  }
  Heads heads(const Tensor& x, int64_t first) const { return {x, first * x.dim(1), x.dim(1)}; }
  /// The operations on the sequence at `span` alone, or on all of them.
  Attention forward(const AttentionShape& s, const AttentionSpan& at = {}) const {
    return {s,    heads(q, at.q_begin), heads(k, at.k_begin), heads(v, at.k_begin), part(out, s, at), lse_of(s, at),
            sinks};
  }
  AttentionBackward backward(const AttentionShape& s, const AttentionSpan& at = {}) const {
    return {.shape = s,
            .q = heads(q, at.q_begin),
            .k = heads(k, at.k_begin),
            .v = heads(v, at.k_begin),
            .out = part(out, s, at),
            .lse = lse_of(s, at),
            .d_out = part(d_out, s, at),
            .dq = heads(dq, at.q_begin),
            .dk = heads(dk, at.k_begin),
            .dv = heads(dv, at.k_begin),
            .sinks = sinks,
            .d_sinks = d_sinks};
  }
  AttentionShape alone(const AttentionSpan& span) const {
    AttentionShape one = shape;
    one.spans.clear();
    one.batch = 1, one.q_length = span.q_length, one.k_length = span.k_length;
    return one;
  }

 private:
  static Tensor part(const Tensor& x, const AttentionShape& s, const AttentionSpan& at) {
    return x.slice(at.q_begin, at.q_begin + s.q_tokens());
  }
  Tensor lse_of(const AttentionShape& s, const AttentionSpan& at) const {
    return lse.flat(at.q_begin * s.num_heads, (at.q_begin + s.q_tokens()) * s.num_heads);
  }
};

AttentionShape shape_of(std::vector<AttentionSpan> spans) {
  return {.num_heads = 4, .num_kv_heads = 2, .head_dim = 20, .scale = 0.3, .spans = std::move(spans)};
}

/// Documents of these lengths in one row.
AttentionShape documents(const std::vector<int64_t>& lengths) {
  std::vector<AttentionSpan> spans;
  int64_t begin = 0;
  for (const int64_t length : lengths) spans.push_back({begin, length, begin, length}), begin += length;
  return shape_of(std::move(spans));
}

class AttentionSpans : public ::testing::Test {
 protected:
  std::shared_ptr<Memory> memory_ = Memory::create();
};

TEST_F(AttentionSpans, packed_sequences_have_the_bits_of_each_alone) {
  int64_t turn = 0;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    for (const int64_t window : {0, 30}) {
      if (!takes_case(turn++, 3)) continue;
      AttentionShape shape = documents({70, 1, 130, 64, 7});
      shape.window = window;
      shape.softcap = window > 0 ? 2 : 0;
      shape.v_head_dim = window > 0 ? 12 : 0;
      const Packed together(*memory_, shape, dtype, false), alone(*memory_, shape, dtype, false);
      run(together.forward(shape)), run(together.backward(shape));
      for (const AttentionSpan& span : shape.spans) {
        run(alone.forward(alone.alone(span), span));
        run(alone.backward(alone.alone(span), span));
      }
      expect_same_bits(together.out, alone.out);
      expect_same_bits(together.lse, alone.lse);
      expect_same_bits(together.dq, alone.dq);
      expect_same_bits(together.dk, alone.dk);
      expect_same_bits(together.dv, alone.dv);
    }
  }
}

TEST_F(AttentionSpans, gradients_of_sinks_are_the_sum_over_sequences) {
  const AttentionShape shape = documents({70, 9, 33});
  const Packed ours(*memory_, shape, DType::f32, true), oracle(*memory_, shape, DType::f32, true);
  run(ours.forward(shape)), run(ours.backward(shape));
  bool accumulate = false;
  for (const AttentionSpan& span : shape.spans) {
    reference::run(oracle.forward(oracle.alone(span), span));
    AttentionBackward backward = oracle.backward(oracle.alone(span), span);
    backward.accumulate_sinks = accumulate;
    reference::run(backward);
    accumulate = true;
  }
  EXPECT_LT(max_abs_difference(ours.d_sinks, oracle.d_sinks), 1e-4);
}

/// If what is masked were computed and thrown away, 0 times NaN would show.
TEST_F(AttentionSpans, what_other_sequences_hold_is_never_read) {
  const AttentionShape shape = documents({20, 40, 30});
  const Packed clean(*memory_, shape, DType::f32, false), poisoned(*memory_, shape, DType::f32, false);
  const AttentionSpan& middle = shape.spans[1];
  for (const Tensor& x : {poisoned.q, poisoned.k, poisoned.v, poisoned.d_out})
    reference::run(Fill{.x = x.slice(middle.q_begin, middle.q_begin + middle.q_length),
                        .value = std::numeric_limits<double>::quiet_NaN()});
  for (const Packed* each : {&clean, &poisoned}) {
    run(each->forward(shape));
    run(each->backward(shape));
  }
  for (const AttentionSpan& span : {shape.spans[0], shape.spans[2]}) {
    const auto rows = [&](const Tensor& x) { return x.slice(span.q_begin, span.q_begin + span.q_length); };
    expect_same_bits(rows(poisoned.out), rows(clean.out));
    expect_same_bits(rows(poisoned.dq), rows(clean.dq));
    expect_same_bits(rows(poisoned.dk), rows(clean.dk));
    expect_same_bits(rows(poisoned.dv), rows(clean.dv));
  }
  EXPECT_TRUE(std::isnan(poisoned.out.slice(middle.q_begin, middle.q_begin + 1).to_vector<float>()[0]));
}

/// One new token, or a few, of sequences whose keys lie in a cache, in any order and with room between them.
TEST_F(AttentionSpans, keys_may_lie_anywhere_in_a_cache) {
  for (const DType dtype : kCpuDTypes) {
    for (const int64_t window : {0, 25}) {
      AttentionShape shape = shape_of({{0, 1, 200, 90}, {1, 1, 0, 1}, {2, 3, 400, 130}, {5, 1, 100, 64}});
      shape.window = window;
      const Packed ours(*memory_, shape, dtype, true), exact = [&] {
        Packed copy = ours;
        for (Tensor* x : {&copy.q, &copy.k, &copy.v, &copy.out, &copy.lse, &copy.sinks})
          *x = converted(*memory_, *x, DType::f64);
        return copy;
      }();
      run(ours.forward(shape));
      for (const AttentionSpan& span : shape.spans) reference::run(exact.forward(exact.alone(span), span));
      const double noise = rounds_probabilities(shape, dtype) ? unit_roundoff(dtype) * 2 : 1e-5;  // values are below 4
      expect_rounded(ours.out, exact.out, noise);
      expect_close(ours.lse, exact.lse, 1e-5, 1e-5);
    }
  }
}

TEST_F(AttentionSpans, the_number_of_threads_changes_no_bit) {
  if (tested_backend() != "cpu") GTEST_SKIP() << "threads of the host do not compute";
  const AttentionShape shape = documents({300, 3, 140, 1});
  const Packed first(*memory_, shape, DType::bf16, true);
  const ThreadCount one(1);
  run(first.forward(shape)), run(first.backward(shape));
  const ThreadCount four(4);
  const Packed second(*memory_, shape, DType::bf16, true);
  run(second.forward(shape)), run(second.backward(shape));
  expect_same_bits(first.out, second.out);
  expect_same_bits(first.dk, second.dk);
  expect_same_bits(first.d_sinks, second.d_sinks);
}

TEST_F(AttentionSpans, spans_that_overlap_or_leave_their_tensors_are_errors) {
  const AttentionShape shape = documents({20, 10});
  const Packed packed(*memory_, shape, DType::f32, false);
  const auto with = [&](const AttentionSpan& second) {
    AttentionShape changed = shape;
    changed.spans[1] = second;
    return changed;
  };
  for (const AttentionSpan& second :
       {AttentionSpan{19, 10, 20, 10}, {21, 9, 20, 10}, {20, 10, 21, 10}, {20, 10, -1, 10}})
    EXPECT_THROW(run(packed.forward(with(second))), ShapeError);
  EXPECT_NO_THROW(run(packed.forward(with({20, 10, 0, 30}))));  // keys may be shared
  EXPECT_NO_THROW(run(packed.backward(with({20, 10, 0, 30}))));
}

}  // namespace
}  // namespace nought::attention_spans_test
