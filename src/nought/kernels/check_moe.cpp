#include "nought/kernels/check.h"
#include "nought/kernels/grouping.h"

namespace nought {
namespace {

/// `x`, named `name`, has `numel` elements of `dtype`.
void expect(const char* op, const char* name, const Tensor& x, int64_t numel, DType dtype) {
  require<ShapeError>(x.numel() == numel && x.dtype() == dtype, "{}: {} is {}, expected {} elements of {}", op, name, x,
                      numel, name_of(dtype));
}

void expect_rows(const char* op, const char* name, const Tensor& x) {
  require<ShapeError>(is_float(x.dtype()) && x.rank() >= 1 && x.dim(-1) > 0,
                      "{}: {} is {}, expected [rows, n] of a floating-point dtype with n > 0", op, name, x);
}

void expect_indices(const char* op, const Tensor& index, int64_t least, int64_t limit) {
  require<ShapeError>(index.dtype() == DType::i32, "{}: the indices are {}, expected i32", op, index);
  if (!index.on_host()) return;  // kernels on a device skip what is outside
  for (const int32_t i : index.span<int32_t>())
    require(i >= least && i < limit, "{}: index {} is outside [{}, {})", op, i, least, limit);
}

void expect_rule(const char* op, const RouterRule& rule, const Tensor& logits) {
  require<ShapeError>(logits.rank() == 2 && (logits.dtype() == DType::f32 || logits.dtype() == DType::f64),
                      "{}: logits are {}, expected [tokens, experts] of f32 or f64", op, logits);
  const int64_t experts = logits.dim(1), groups = rule.num_groups;
  require<ShapeError>(rule.top_k >= 1 && rule.top_k <= experts, "{}: a token cannot choose {} of {} experts", op,
                      rule.top_k, experts);
  require<ShapeError>(groups >= 1 && experts % groups == 0 && rule.kept_groups >= 1 && rule.kept_groups <= groups,
                      "{}: cannot keep {} of {} groups of {} experts", op, rule.kept_groups, groups, experts);
  require<ShapeError>(rule.group_score == GroupScore::best || groups == 1 || experts / groups >= 2,
                      "{}: groups of {} expert have no second best", op, experts / groups);
}

/// Half of gate_up's features each.
void expect_gated(const char* op, const Tensor& gate_up, const char* name, const Tensor& y) {
  expect_rows(op, "gate_up", gate_up);
  require<ShapeError>(gate_up.dim(-1) % 2 == 0, "{}: gate_up is {}, expected an even last dimension", op, gate_up);
  expect(op, name, y, gate_up.numel() / 2, gate_up.dtype());
}

}  // namespace

void check_shapes(const Route& op) {
  expect_rule("Route", op.rule, op.logits);
  const int64_t tokens = op.logits.dim(0), experts = op.logits.dim(1);
  require<ShapeError>(!op.choice_bias || (op.choice_bias.numel() == experts && is_float(op.choice_bias.dtype())),
                      "Route: choice_bias is {}, expected {} floats", op.choice_bias, experts);
  expect("Route", "experts", op.experts, tokens * op.rule.top_k, DType::i32);
  expect("Route", "weights", op.weights, tokens * op.rule.top_k, op.logits.dtype());
  expect("Route", "probability_sums", op.probability_sums, experts, DType::f64);
}

void check_shapes(const RouteBackward& op) {
  expect_rule("RouteBackward", op.rule, op.logits);
  const int64_t choices = op.logits.dim(0) * op.rule.top_k;
  expect_indices("RouteBackward", op.experts, 0, op.logits.dim(1));
  expect("RouteBackward", "experts", op.experts, choices, DType::i32);
  expect("RouteBackward", "d_weights", op.d_weights, choices, op.logits.dtype());
  expect("RouteBackward", "d_logits", op.d_logits, op.logits.numel(), op.logits.dtype());
  if (op.d_probabilities)
    expect("RouteBackward", "d_probabilities", op.d_probabilities, op.logits.dim(1), op.logits.dtype());
}

void check_shapes(const BalanceLoss& op) {
  const int64_t experts = op.gradient.numel();
  require<ShapeError>(experts > 0, "BalanceLoss: gradient is {}, expected [experts]", op.gradient);
  expect("BalanceLoss", "gradient", op.gradient, experts, DType::f64);
  expect("BalanceLoss", "sums", op.sums, 2 * experts + 2, DType::f64);
  expect("BalanceLoss", "loss", op.loss, 1, DType::f64);
}

void check_shapes(const GroupByExpert& op) {
  require<ShapeError>(op.experts.rank() == 2 && op.counts.numel() > 0,
                      "GroupByExpert: experts are {} and counts {}, expected [tokens, top_k] and [experts]", op.experts,
                      op.counts);
  const int64_t choices = op.experts.numel(), num_experts = op.counts.numel();
  expect_indices("GroupByExpert", op.experts, 0, num_experts);
  expect("GroupByExpert", "counts", op.counts, num_experts, DType::i32);
  expect("GroupByExpert", "row", op.row, choices, DType::i32);
  const int64_t rows = most_rows(choices, num_experts, op.capacity);
  require<ShapeError>(op.token.dtype() == DType::i32 && op.token.numel() >= rows,
                      "GroupByExpert: token is {}, expected at least {} elements of i32", op.token, rows);
  expect("GroupByExpert", "pair", op.pair, op.token.numel(), DType::i32);
}

void check_shapes(const GatherRows& op) {
  expect_rows("GatherRows", "x", op.x);
  expect_indices("GatherRows", op.index, -1, op.x.rows());
  expect("GatherRows", "out", op.out, op.index.numel() * op.x.dim(-1), op.x.dtype());
}

void check_shapes(const CombineRows& op) {
  expect_rows("CombineRows", "x", op.x);
  expect_indices("CombineRows", op.index, -1, op.x.rows());
  expect("CombineRows", "out", op.out, op.index.rows() * op.x.dim(-1), op.x.dtype());
  if (op.weights) expect("CombineRows", "weights", op.weights, op.index.numel(), statistics_dtype(op.x.dtype()));
}

void check_shapes(const ScaleRows& op) {
  expect_rows("ScaleRows", "x", op.x);
  expect("ScaleRows", "factors", op.factors, op.x.rows(), statistics_dtype(op.x.dtype()));
  expect("ScaleRows", "y", op.y, op.x.numel(), op.x.dtype());
}

void check_shapes(const DotRows& op) {
  expect_rows("DotRows", "a", op.a);
  expect("DotRows", "b", op.b, op.a.numel(), op.a.dtype());
  expect("DotRows", "out", op.out, op.a.rows(), statistics_dtype(op.a.dtype()));
  if (op.factors) expect("DotRows", "factors", op.factors, op.a.dim(-1), op.a.dtype());
}

void check_shapes(const ClampedSwiglu& op) { expect_gated("ClampedSwiglu", op.gate_up, "y", op.y); }

void check_shapes(const ClampedSwigluBackward& op) {
  expect_gated("ClampedSwigluBackward", op.gate_up, "dy", op.dy);
  expect("ClampedSwigluBackward", "d_gate_up", op.d_gate_up, op.gate_up.numel(), op.gate_up.dtype());
}

}  // namespace nought
