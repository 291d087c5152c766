#include <string_view>

#include "nought/kernels/check.h"

namespace nought {
namespace {

void expect_values(std::string_view op, std::string_view name, const Tensor& x, int64_t numel, DType dtype) {
  require<ShapeError>(x.numel() == numel && x.dtype() == dtype, "{}: {} is {}, expected {} elements of {}", op, name, x,
                      numel, name_of(dtype));
}

/// What both directions have alike.
template <class Op>
void check_inputs(std::string_view name, const Op& op, int64_t states) {
  const DeltaShape& s = op.shape;
  require<ShapeError>(
      s.key_heads > 0 && s.value_heads > 0 && s.value_heads % s.key_heads == 0 && s.key_dim > 0 && s.value_dim > 0,
      "{}: {} key heads of {} and {} value heads of {}: expected several value heads for each key head", name,
      s.key_heads, s.key_dim, s.value_heads, s.value_dim);
  require<ShapeError>(is_float(op.qkv.dtype()) && op.qkv.rank() >= 1 && op.qkv.dim(-1) == s.width(),
                      "{}: qkv is {}, expected rows of {} floats", name, op.qkv, s.width());
  const DType dtype = op.qkv.dtype();
  expect_values(name, "ba", op.ba, op.qkv.rows() * 2 * s.value_heads, dtype);
  expect_values(name, "a_log", op.a_log, s.value_heads, dtype);
  expect_values(name, "dt_bias", op.dt_bias, s.value_heads, dtype);
  check_state_spans(name, op.spans, op.qkv.rows(), states);
}

}  // namespace

double DeltaShape::flops_per_token() const {
  constexpr double kWithin = 64;  // half a chunk, of five products of which each token needs half
  const double state = static_cast<double>(key_dim) * static_cast<double>(value_dim);
  return static_cast<double>(value_heads) * (6 * state + kWithin * static_cast<double>(2 * value_dim + 2 * key_dim));
}

void check_shapes(const DeltaRule& op) {
  constexpr std::string_view kName = "DeltaRule";
  const DeltaShape& s = op.shape;
  require<ShapeError>(!op.states || op.states.rank() == 4, "{}: states is {}, expected [n, {}, {}, {}]", kName,
                      op.states, s.value_heads, s.key_dim, s.value_dim);
  check_inputs(kName, op, op.states ? op.states.dim(0) : -1);
  expect_values(kName, "out", op.out, op.qkv.rows() * s.values(), op.qkv.dtype());
  if (op.states)
    expect_values(kName, "states", op.states, op.states.dim(0) * s.value_heads * s.key_dim * s.value_dim,
                  statistics_dtype(op.qkv.dtype()));
}

void check_shapes(const DeltaRuleBackward& op) {
  constexpr std::string_view kName = "DeltaRuleBackward";
  check_inputs(kName, op, -1);
  const DType dtype = op.qkv.dtype(), wide = op.d_a_log.dtype();
  expect_values(kName, "d_out", op.d_out, op.qkv.rows() * op.shape.values(), dtype);
  expect_values(kName, "d_qkv", op.d_qkv, op.qkv.numel(), dtype);
  expect_values(kName, "d_ba", op.d_ba, op.ba.numel(), dtype);
  require<ShapeError>(wide == dtype || wide == DType::f32, "{}: d_a_log is {}, expected {} or f32", kName, op.d_a_log,
                      name_of(dtype));
  expect_values(kName, "d_a_log", op.d_a_log, op.shape.value_heads, wide);
  expect_values(kName, "d_dt_bias", op.d_dt_bias, op.shape.value_heads, wide);
}

}  // namespace nought
