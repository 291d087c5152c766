// Attention whose queries meet their keys piece by piece is the whole attention: results are merged, gradients added.
#include <algorithm>
#include <limits>
#include <vector>

#include "support/attention_cases.h"
#include "support/kernel_test.h"
#include "support/size.h"

namespace nought::attention_merge_test {
namespace {

using namespace test;

constexpr float kNothing = -std::numeric_limits<float>::infinity();

/// Documents one behind the other, cut into pieces of queries, and into chunks of keys that may hold parts of several.
struct Cut {
  std::vector<Interval> documents, queries, keys;

  /// `draw` gives uniform integers below a limit.
  explicit Cut(uint64_t seed) {
    uint64_t drawn = 0;
    const auto draw = [&](int64_t limit) { return static_cast<int64_t>(philox(seed, drawn++)[0]) % limit; };
    int64_t end = 0;
    for (int64_t i = 0; i < 1 + draw(3); ++i) {
      const int64_t length = 1 + draw(i == 0 ? 300 : 90);
      documents.push_back({end, end + length});
      end += length;
    }
    const auto cut_into = [&](Interval whole, int64_t pieces, std::vector<Interval>& to) {
      std::vector<int64_t> ends{whole.end};
      for (int64_t i = 1; i < pieces; ++i) ends.push_back(whole.begin + draw(whole.size() + 1));
      std::sort(ends.begin(), ends.end());
      for (const int64_t at : ends) to.push_back({to.empty() ? 0 : to.back().end, at});
    };
    for (const Interval& document : documents) cut_into(document, 1 + draw(3), queries);
    cut_into({0, end}, 2 + draw(3), keys);
    std::rotate(keys.begin(), keys.begin() + draw(std::ssize(keys)), keys.end());  // pieces come in any order
  }
  int64_t tokens() const { return documents.back().end; }
  const Interval& document_of(const Interval& piece) const {
    return *std::find_if(documents.begin(), documents.end(),
                         [&](const Interval& document) { return piece.end <= document.end; });
  }

  std::vector<AttentionSpan> whole() const {
    std::vector<AttentionSpan> spans;
    for (const Interval& d : documents) spans.push_back({d.begin, d.size(), d.begin, d.size()});
    return spans;
  }
  /// All queries, and of each document's keys those of a chunk.
  std::vector<AttentionSpan> with(const Interval& chunk) const {
    std::vector<AttentionSpan> spans;
    for (const Interval& piece : queries) {
      const Interval seen = intersect(document_of(piece), chunk);
      spans.push_back({piece.begin, piece.size(), seen.begin, seen.size(), piece.begin - seen.begin});
    }
    return spans;
  }
  /// Each piece of queries with all keys before its end: several read the same ones.
  std::vector<AttentionSpan> gathered() const {
    std::vector<AttentionSpan> spans;
    for (const Interval& piece : queries) {
      const int64_t begin = document_of(piece).begin;
      spans.push_back({piece.begin, piece.size(), begin, piece.end - begin});
    }
    return spans;
  }
};

/// Attention over the documents of a cut, whole or in pieces.
struct Pieces {
  AttentionShape shape;  // without spans
  Tensor q, k, v, d_out, sinks;
  Tensor out, lse, dq, dk, dv, d_sinks;

  Pieces(Memory& memory, const AttentionShape& s, int64_t tokens, DType dtype, bool with_sinks) : shape(s) {
    uint64_t seed = 0;
    const auto rows = [&](int64_t width) { return random_tensor(memory, {tokens, width}, dtype, ++seed); };
    q = rows(s.num_heads * s.head_dim), k = rows(s.num_kv_heads * s.head_dim), v = rows(s.num_kv_heads * s.value_dim());
    d_out = rows(s.num_heads * s.value_dim());
    if (with_sinks) sinks = random_tensor(memory, {s.num_heads}, dtype, ++seed, 2);
    const DType statistics = statistics_dtype(dtype);  // results hold something before they are written
    out = random_tensor(memory, d_out.shape(), dtype, 90);
    lse = random_tensor(memory, {q.dim(0) * shape.num_heads}, statistics, 91);
    dq = random_tensor(memory, q.shape(), dtype, 92);
    dk = random_tensor(memory, k.shape(), dtype, 93), dv = random_tensor(memory, v.shape(), dtype, 94);
    if (sinks) d_sinks = random_tensor(memory, {shape.num_heads}, statistics, 95);
  }
  Pieces exact(Memory& memory) const {
    Pieces copy = *this;
    for (Tensor* x : {&copy.q, &copy.k, &copy.v, &copy.d_out, &copy.sinks, &copy.out, &copy.lse, &copy.dq, &copy.dk,
                      &copy.dv, &copy.d_sinks})
      if (*x) *x = converted(memory, *x, DType::f64);
    return copy;
  }

  static Heads heads(const Tensor& x) { return {x, 0, x.dim(1)}; }
  AttentionShape over(std::vector<AttentionSpan> spans) const {
    AttentionShape s = shape;
    s.spans = std::move(spans);
    return s;
  }
  Attention forward(std::vector<AttentionSpan> spans, bool takes_sinks = true) const {
    return {over(std::move(spans)), heads(q), heads(k), heads(v), out, lse, takes_sinks ? sinks : Tensor{}};
  }
  AttentionBackward backward(std::vector<AttentionSpan> spans, bool is_first = true) const {
    return {.shape = over(std::move(spans)),
            .q = heads(q),
            .k = heads(k),
            .v = heads(v),
            .out = out,
            .lse = lse,
            .d_out = d_out,
            .dq = heads(dq),
            .dk = heads(dk),
            .dv = heads(dv),
            .sinks = is_first ? sinks : Tensor{},
            .d_sinks = is_first ? d_sinks : Tensor{},
            .accumulate_q = !is_first,
            .accumulate_kv = true};
  }
};

/// lse of every token's heads, [tokens, heads], whatever the spans are that it was written by.
std::vector<double> by_token(const Tensor& lse, const AttentionShape& s) {
  const std::vector<double> values = lse.to_vector<double>();
  std::vector<double> ordered;
  for (const AttentionSpan& span : s.spans)
    for (int64_t i = 0; i < span.q_length; ++i)
      for (int64_t h = 0; h < s.num_heads; ++h)
        ordered.push_back(values[static_cast<size_t>(span.q_begin * s.num_heads + h * span.q_length + i)]);
  return ordered;
}

AttentionShape shape_of(uint64_t seed) {
  constexpr int64_t kGroups[][2] = {{2, 2}, {4, 2}, {3, 1}, {6, 2}};  // heads, key/value heads
  constexpr int64_t kWindows[] = {0, 0, 1, 37, 100}, kDims[] = {16, 20, 7, 64}, kValueDims[] = {0, 0, 12, 24};
  const auto& [heads, kv_heads] = kGroups[seed % 4];
  return {.num_heads = heads,
          .num_kv_heads = kv_heads,
          .head_dim = kDims[seed / 2 % 4],
          .scale = 1 / std::sqrt(static_cast<double>(kDims[seed / 2 % 4])),
          .window = kWindows[seed % 5],
          .softcap = seed % 3 == 0 ? 1.5 : 0,
          .v_head_dim = kValueDims[seed / 3 % 4]};
}

class AttentionMerge : public KernelTest {
 protected:
  static double largest_of(std::initializer_list<Tensor> tensors) {
    double largest = 1;
    for (const Tensor& x : tensors)
      for (const double value : x.to_vector<double>()) largest = std::max(largest, std::abs(value));
    return largest;
  }

  /// Forward over the chunks of keys, merged; the first one takes the sinks.
  void attend_in_pieces(Pieces& p, const Cut& cut) {
    const DType wide = statistics_dtype(p.q.dtype());
    p.out = random(p.out.shape(), wide, 70);
    const Tensor out = random(p.out.shape(), wide, 71), lse = random(p.lse.shape(), wide, 72);
    for (size_t i = 0; i < cut.keys.size(); ++i) {
      Attention piece = p.forward(cut.with(cut.keys[i]), i == 0);
      if (i == 0) {
        run(piece);
        continue;
      }
      piece.out = out, piece.lse = lse;
      run(piece);
      run(MergeAttention{.shape = piece.shape, .piece_out = out, .piece_lse = lse, .out = p.out, .lse = p.lse});
    }
  }

  void expect_pieces_are_the_whole(uint64_t seed, DType dtype) {
    const Cut cut(seed);
    const AttentionShape s = shape_of(seed);
    SCOPED_TRACE(fmt::format("seed {}, {} tokens in {} documents, {}", seed, cut.tokens(), cut.documents.size(),
                             name_of(dtype)));
    Pieces pieces(*memory_, s, cut.tokens(), dtype, seed % 2 == 0);
    Pieces exact = pieces.exact(*memory_);
    const bool dots = rounds_probabilities(s, dtype);
    attend_in_pieces(pieces, cut);
    reference::run(exact.forward(cut.whole()));
    const double noise = dots ? unit_roundoff(dtype) / 2 * largest_of({exact.v}) : 2e-6;
    expect_close(pieces.out, exact.out, noise, noise);
    const auto found = by_token(pieces.lse, pieces.over(cut.with(cut.keys[0])));
    const auto expected = by_token(exact.lse, exact.over(cut.whole()));
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 2e-6 * (1 + std::abs(expected[i])));

    const Tensor rounded = converted(*memory_, pieces.out, dtype);  // what the layers behind get
    exact.out = converted(*memory_, rounded, DType::f64);
    zero(exact.dk), zero(exact.dv);
    reference::run(exact.backward(cut.whole()));
    pieces.out = rounded;
    for (Tensor* x : {&pieces.dq, &pieces.dk, &pieces.dv}) *x = random(x->shape(), statistics_dtype(dtype), 80);
    zero(pieces.dk), zero(pieces.dv);
    for (size_t i = 0; i < cut.keys.size(); ++i) run(pieces.backward(cut.with(cut.keys[i]), i == 0));
    const double wide_noise = (dots ? unit_roundoff(dtype) : 1e-5) * largest_of({exact.dq, exact.dk, exact.dv});
    expect_close(pieces.dq, exact.dq, 0, wide_noise);
    expect_close(pieces.dk, exact.dk, 0, wide_noise);
    expect_close(pieces.dv, exact.dv, 0, wide_noise);
    if (pieces.sinks) expect_close(pieces.d_sinks, exact.d_sinks, 1e-5, 1e-5 * largest_of({exact.d_sinks}));
  }
};

NOUGHT_SIZE(medium);
TEST_F(AttentionMerge, pieces_of_every_dtype_are_the_whole_on_every_instruction_set) {
  for_each_instruction_set([&] {
    int64_t turn = 0;
    for (uint64_t seed = 0; seed < 6; ++seed)
      for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
        if (takes_case(turn++, 8)) expect_pieces_are_the_whole(seed, dtype);
  });
}

NOUGHT_SIZE(medium);
TEST_F(AttentionMerge, pieces_of_random_cuts_are_the_whole) {
  for (uint64_t seed = 6; seed < 24; ++seed)
    if (takes_case(static_cast<int64_t>(seed), 20))
      expect_pieces_are_the_whole(seed, seed % 3 == 0 ? DType::bf16 : DType::f32);
}

TEST_F(AttentionMerge, the_reference_joins_pieces_to_the_whole) {
  for (const uint64_t seed : {0, 3, 5}) {
    if (!takes_case(static_cast<int64_t>(seed), 3)) continue;
    const Cut cut(seed);
    Pieces pieces(*memory_, shape_of(seed), cut.tokens(), DType::f64, true), whole = pieces.exact(*memory_);
    attend_in_pieces(pieces, cut);
    run(whole.forward(cut.whole()));
    expect_close(pieces.out, whole.out, 1e-12, 1e-12);
  }
}

NOUGHT_SIZE(medium);
TEST_F(AttentionMerge, gradients_of_keys_that_spans_share_are_sums) {
  int64_t turn = 0;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      if (!takes_case(turn++, 23)) continue;
      const Cut cut(seed);
      const AttentionShape s = shape_of(seed);
      SCOPED_TRACE(fmt::format("seed {}, {}", seed, name_of(dtype)));
      Pieces pieces(*memory_, s, cut.tokens(), dtype, true), exact = pieces.exact(*memory_);
      run(pieces.forward(cut.gathered()));
      reference::run(exact.forward(cut.whole()));
      exact.out = converted(*memory_, pieces.out, DType::f64);
      AttentionBackward backward = pieces.backward(cut.gathered()), whole = exact.backward(cut.whole());
      backward.accumulate_kv = whole.accumulate_kv = false;
      run(backward);
      reference::run(whole);
      const double largest = largest_of({exact.dq, exact.dk, exact.dv});
      const double noise = (rounds_probabilities(s, dtype) ? unit_roundoff(dtype) : 1e-5) * largest;
      expect_rounded(pieces.dq, exact.dq, noise);
      expect_rounded(pieces.dk, exact.dk, noise);
      expect_rounded(pieces.dv, exact.dv, noise);
      expect_close(pieces.d_sinks, exact.d_sinks, 1e-5, 1e-5 * largest_of({exact.d_sinks}));
    }
  }
}

NOUGHT_SIZE(medium);
TEST_F(AttentionMerge, the_number_of_threads_changes_no_bit) {
  if (tested_backend() != "cpu") GTEST_SKIP() << "threads of the host do not compute";
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Cut cut(8);
    std::vector<Pieces> all;
    for (const int threads : {1, 2, 4}) {
      const ThreadCount guard(threads);
      Pieces& p = all.emplace_back(*memory_, shape_of(8), cut.tokens(), dtype, true);
      attend_in_pieces(p, cut);
      p.out = converted(*memory_, p.out, dtype);
      run(p.backward(cut.gathered()));
      expect_same_bits(p.out, all.front().out);
      expect_same_bits(p.dq, all.front().dq);
      expect_same_bits(p.dk, all.front().dk);
      expect_same_bits(p.dv, all.front().dv);
      expect_same_bits(p.d_sinks, all.front().d_sinks);
    }
  }
}

TEST_F(AttentionMerge, gradients_are_added_to_what_is_there_if_that_is_asked) {
  const std::vector<AttentionSpan> spans{{0, 20, 30, 40, 25}, {20, 11, 30, 20}, {31, 49, 75, 5}};
  for (const bool cpu_runs : {true, false}) {
    const auto backward = [&](const AttentionBackward& op) { cpu_runs ? run(op) : reference::run(op); };
    Pieces p(*memory_, shape_of(9), 80, DType::f32, false);
    run(p.forward(spans));
    const Tensor dq = clone(p.dq), dk = clone(p.dk), dv = clone(p.dv);
    AttentionBackward op = p.backward(spans);
    op.accumulate_kv = false;
    backward(op);
    const Tensor once_q = clone(p.dq), once_k = clone(p.dk), once_v = clone(p.dv);
    copy(dq, p.dq), copy(dk, p.dk), copy(dv, p.dv);
    op.accumulate_q = op.accumulate_kv = true;
    backward(op);
    const auto expect_added = [](const Tensor& sum, const Tensor& before, const Tensor& once, Interval named) {
      const int64_t width = sum.dim(1);
      const auto s = sum.to_vector<double>(), b = before.to_vector<double>(), o = once.to_vector<double>();
      for (int64_t i = 0; i < sum.numel(); ++i) {
        const auto at = static_cast<size_t>(i);
        const int64_t token = i / width;
        if (token < named.begin || token >= named.end || (token >= 70 && token < 75))
          ASSERT_TRUE(s[at] == b[at] && o[at] == b[at]) << "a row that no span names was written";
        else
          ASSERT_NEAR(s[at], b[at] + o[at], 1e-6 * (std::abs(b[at]) + std::abs(o[at])));
      }
    };
    expect_added(p.dk, dk, once_k, {30, 80});
    expect_added(p.dv, dv, once_v, {30, 80});
    expect_added(p.dq.slice(0, 70), dq.slice(0, 70), once_q.slice(0, 70), {0, 70});
  }
}

TEST_F(AttentionMerge, queries_before_all_keys_and_without_keys_give_zero_and_no_gradient) {
  const std::vector<AttentionSpan> spans{{0, 30, 0, 50, -30}, {30, 30, 0, 0, 0}, {60, 20, 0, 50, -7}};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Pieces p(*memory_, shape_of(1), 80, dtype, false);  // no sinks: nothing at all is seen
    run(p.forward(spans));
    run(p.backward(spans));
    EXPECT_EQ(largest_of({p.out.slice(0, 67)}), 1);  // largest_of() is 1 at least
    const std::vector<double> lse = by_token(p.lse, p.over(spans));
    const auto out = p.out.to_vector<double>(), dq = p.dq.to_vector<double>();
    for (int64_t token = 0; token < 80; ++token) {
      const bool sees = token >= 67;  // the third span from position 0 on
      for (int64_t h = 0; h < p.shape.num_heads; ++h)
        ASSERT_EQ(std::isfinite(lse[static_cast<size_t>(token * p.shape.num_heads + h)]), sees) << token;
      for (int64_t i = 0; i < p.q.dim(1); ++i) {
        const double gradient = dq[static_cast<size_t>(token * p.q.dim(1) + i)];
        ASSERT_TRUE(sees ? std::isfinite(gradient) : gradient == 0) << token;
      }
      for (int64_t i = 0; i < p.out.dim(1); ++i)
        ASSERT_EQ(out[static_cast<size_t>(token * p.out.dim(1) + i)] != 0, sees) << token;
    }
    for (const Tensor& x : {p.dk, p.dv})
      for (const double gradient : x.to_vector<double>()) ASSERT_TRUE(std::isfinite(gradient));
  }
}

TEST_F(AttentionMerge, what_sees_nothing_changes_no_bit_and_is_replaced_whole) {
  const AttentionShape s{.num_heads = 2, .num_kv_heads = 1, .head_dim = 5, .spans = {{0, 3, 0, 0}}};
  const auto filled = [&](const Tensor& x, double value) {
    reference::run(Fill{.x = x, .value = value});
    return x;
  };
  for (const bool cpu_runs : {true, false}) {
    const auto merge = [&](const MergeAttention& op) { cpu_runs ? run(op) : reference::run(op); };
    const Tensor some = random({3, 10}, DType::f32, 1), some_lse = random({6}, DType::f32, 2);
    const Tensor nan = filled(empty({3, 10}, DType::f32), std::numeric_limits<double>::quiet_NaN());
    const Tensor nothing = filled(empty({6}, DType::f32), kNothing);

    const Tensor kept = clone(some), kept_lse = clone(some_lse);
    merge({.shape = s, .piece_out = nan, .piece_lse = nothing, .out = kept, .lse = kept_lse});
    expect_same_bits(kept, some), expect_same_bits(kept_lse, some_lse);

    const Tensor start = clone(nan), start_lse = clone(nothing);
    merge({.shape = s, .piece_out = some, .piece_lse = some_lse, .out = start, .lse = start_lse});
    expect_same_bits(start, some), expect_same_bits(start_lse, some_lse);

    const Tensor zeros = filled(empty({3, 10}, DType::f32), 0), both_lse = clone(nothing);
    merge({.shape = s, .piece_out = nan, .piece_lse = nothing, .out = zeros, .lse = both_lse});
    for (const double value : zeros.to_vector<double>()) EXPECT_EQ(value, 0);
    expect_same_bits(both_lse, nothing);
  }
}

/// A sink is in the piece that takes it, whether or not that piece has keys.
TEST_F(AttentionMerge, a_sink_may_join_by_a_piece_without_keys) {
  Pieces p(*memory_, shape_of(1), 40, DType::f32, true), whole = p.exact(*memory_);
  const std::vector<AttentionSpan> spans{{0, 40, 0, 40}}, none{{0, 40, 0, 0}};
  reference::run(whole.forward(spans));
  run(p.forward(spans, /*takes_sinks=*/false));
  Attention sink = p.forward(none);
  sink.out = empty(p.out.shape(), DType::f32), sink.lse = empty(p.lse.shape(), DType::f32);
  run(sink);
  run(MergeAttention{.shape = sink.shape, .piece_out = sink.out, .piece_lse = sink.lse, .out = p.out, .lse = p.lse});
  expect_close(p.out, whole.out, 2e-6, 2e-6);
  expect_close(p.lse, whole.lse, 2e-6, 2e-6);
}

TEST_F(AttentionMerge, results_of_other_dtypes_or_sizes_are_errors) {
  const Pieces p(*memory_, shape_of(1), 10, DType::bf16, true);
  const std::vector<AttentionSpan> spans{{0, 10, 0, 10}};
  Attention op = p.forward(spans);
  op.out = random(p.out.shape(), DType::f32, 1);
  EXPECT_NO_THROW(run(op));
  op.out = random(p.out.shape(), DType::f16, 1);
  EXPECT_THROW(run(op), ShapeError);
  AttentionBackward backward = p.backward(spans);
  backward.dq.base = random(p.dq.shape(), DType::f32, 1);
  EXPECT_NO_THROW(run(backward));
  backward.dq.base = random(p.dq.shape(), DType::f16, 1);
  EXPECT_THROW(run(backward), ShapeError);
  const Tensor wide = random(p.out.shape(), DType::f32, 1);
  EXPECT_THROW(run(MergeAttention{p.over(spans), p.out, p.lse, p.out, p.lse}), ShapeError);
  EXPECT_THROW(run(MergeAttention{p.over(spans), wide, p.lse.flat(0, 5), wide, p.lse}), ShapeError);
}

}  // namespace
}  // namespace nought::attention_merge_test
