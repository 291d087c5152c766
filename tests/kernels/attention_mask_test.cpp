// Who sees whom, written down once more: reference and cpu attention share one definition of the visible keys, so that
// comparing them with each other cannot show it wrong. Here every key of a query is asked whether it is seen.
#include <cmath>
#include <optional>
#include <vector>

#include "support/kernel_test.h"

#include "nought/kernels/cpu/cpu.h"

namespace nought::attention_mask_test {
namespace {

using namespace test;

/// The definition of transformers' masks (masking_utils.py): causal, and at most `window` keys with the query's own;
/// not causal: as many to either side.
bool sees(int64_t query_position, int64_t key, bool causal, int64_t window) {
  return (!causal || key <= query_position) && (window == 0 || key > query_position - window) &&
         (window == 0 || causal || key < query_position + window);
}

struct Case {
  int64_t q_length, k_length, window;
  bool causal;
  std::optional<int64_t> q_offset = {};

  int64_t position(int64_t query) const { return q_offset ? *q_offset + query : k_length - q_length + query; }
};

class AttentionMask : public KernelTest {
 protected:
  static constexpr int64_t kHeads = 2, kDim = 8;

  /// Attention of one sequence by plain loops. q, k and v: f64.
  Tensor expected_of(const Case& c, const Tensor& q, const Tensor& k, const Tensor& v, double scale) {
    const Tensor out = empty({c.q_length, kHeads * kDim}, DType::f64);
    const auto at = [](const Tensor& x, int64_t token, int64_t head) {
      return x.data<double>() + (token * kHeads + head) * kDim;
    };
    for (int64_t i = 0; i < c.q_length; ++i)
      for (int64_t h = 0; h < kHeads; ++h) {
        std::vector<double> weights(static_cast<size_t>(c.k_length));
        double total = 0;
        for (int64_t j = 0; j < c.k_length; ++j) {
          if (!sees(c.position(i), j, c.causal, c.window)) continue;
          double score = 0;
          for (int64_t d = 0; d < kDim; ++d) score += at(q, i, h)[d] * at(k, j, h)[d];
          total += weights[static_cast<size_t>(j)] = std::exp(scale * score);
        }
        for (int64_t d = 0; d < kDim; ++d) {
          double sum = 0;
          for (int64_t j = 0; j < c.k_length; ++j) sum += weights[static_cast<size_t>(j)] * at(v, j, h)[d];
          at(out, i, h)[d] = total > 0 ? sum / total : 0;
        }
      }
    return out;
  }

  template <class Run>
  void expect_mask(const Case& c, DType dtype, double tolerance, const Run& run) {
    SCOPED_TRACE(fmt::format("{} queries from position {}, {} keys, window {}, {}", c.q_length, c.position(0),
                             c.k_length, c.window, c.causal ? "causal" : "not causal"));
    const Tensor q = random({c.q_length, kHeads * kDim}, dtype, 1), k = random({c.k_length, kHeads * kDim}, dtype, 2);
    const Tensor v = random({c.k_length, kHeads * kDim}, dtype, 3);
    const double scale = 1 / std::sqrt(static_cast<double>(kDim));
    const auto heads = [](const Tensor& x) { return Heads{x, 0, kHeads * kDim}; };
    AttentionShape shape{.batch = 1,
                         .q_length = c.q_length,
                         .k_length = c.k_length,
                         .num_heads = kHeads,
                         .num_kv_heads = kHeads,
                         .head_dim = kDim,
                         .scale = scale,
                         .causal = c.causal,
                         .window = c.window};
    if (c.q_offset) shape.spans = {{0, c.q_length, 0, c.k_length, c.q_offset}};
    const Tensor out = empty({c.q_length, kHeads * kDim}, dtype);
    const Tensor lse = empty({kHeads, c.q_length}, dtype == DType::f64 ? DType::f64 : DType::f32);
    run(Attention{.shape = shape, .q = heads(q), .k = heads(k), .v = heads(v), .out = out, .lse = lse});
    expect_close(out, expected_of(c, wide(q), wide(k), wide(v), scale), tolerance, tolerance);

    // A value has a gradient from exactly the queries that see it.
    const Tensor d_out = empty(out.shape(), dtype), dq = empty(q.shape(), dtype);
    const Tensor dk = empty(k.shape(), dtype), dv = empty(v.shape(), dtype);
    for (int64_t query = 0; query < c.q_length; ++query) {
      zero(d_out);
      reference::run(Fill{.x = d_out.slice(query, query + 1), .value = 1});
      cpu::run(AttentionBackward{.shape = shape,
                                 .q = heads(q),
                                 .k = heads(k),
                                 .v = heads(v),
                                 .out = out,
                                 .lse = lse,
                                 .d_out = d_out,
                                 .dq = heads(dq),
                                 .dk = heads(dk),
                                 .dv = heads(dv)});
      const std::vector<double> gradient = dv.to_vector<double>();
      for (int64_t j = 0; j < c.k_length; ++j)
        ASSERT_EQ(gradient[static_cast<size_t>(j * kHeads * kDim)] != 0, sees(c.position(query), j, c.causal, c.window))
            << "query " << query << ", key " << j;
    }
  }
};

const std::vector<Case> kCases{{7, 7, 0, true},    {7, 7, 0, false},   {7, 7, 1, true},     {7, 7, 3, true},
                               {7, 7, 7, true},    {7, 7, 8, true},    {7, 7, 3, false},    {1, 9, 0, true},
                               {1, 9, 4, true},    {3, 9, 4, true},    {3, 9, 9, true},     {70, 70, 33, true},
                               {70, 70, 64, true}, {5, 130, 65, true}, {70, 70, 20, false}, {70, 70, 65, false}};
/// Queries before, among and behind a piece of the keys.
const std::vector<Case> kPieces{{7, 9, 0, true, -3},    {7, 9, 0, true, -7},    {7, 9, 0, true, 9},
                                {7, 9, 4, true, 9},     {7, 9, 4, true, 30},    {7, 9, 4, true, 5},
                                {7, 9, 4, false, -5},   {7, 9, 5, false, 11},   {70, 66, 0, true, 66},
                                {70, 66, 33, true, 40}, {70, 66, 90, true, 70}, {40, 66, 65, true, 65}};

TEST_F(AttentionMask, the_reference_sees_what_the_definition_says) {
  for (const auto& cases : {kCases, kPieces})
    for (const Case& c : cases) expect_mask(c, DType::f64, 1e-12, [](const Attention& op) { reference::run(op); });
}

TEST_F(AttentionMask, cpu_attention_sees_what_the_definition_says) {
  for (const auto& cases : {kCases, kPieces})
    for (const Case& c : cases) {
      expect_mask(c, DType::f32, 1e-5, [](const Attention& op) { cpu::run(op); });
      expect_mask(c, DType::bf16, 2e-2, [](const Attention& op) { cpu::run(op); });
    }
}

}  // namespace
}  // namespace nought::attention_mask_test
