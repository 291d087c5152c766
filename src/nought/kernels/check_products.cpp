#include <cmath>
#include <string_view>

#include "nought/kernels/check.h"
#include "nought/kernels/head_codes.h"

namespace nought {
namespace {

struct Matrix {
  int64_t rows = 0, columns = 0;
};

Matrix fold(const Weight& x, const char* name) {
  const Shape& shape = x.shape();
  require<ShapeError>(shape.rank() >= 1, "MatMul needs {} as a matrix, got {}", name, x);
  Matrix matrix{1, shape[-1]};
  for (int axis = 0; axis + 1 < shape.rank(); ++axis) matrix.rows *= shape[axis];
  return matrix;
}

void require_tensor(const Tensor& x, int64_t numel, DType dtype, const char* name) {
  require<ShapeError>(x.numel() == numel && x.dtype() == dtype, "Attention needs {} with {} elements of {}, got {}",
                      name, numel, name_of(dtype), x);
}

/// A result that may be kept wider than what it is computed from.
DType result_dtype(const Tensor& x, DType dtype) { return x.dtype() == DType::f32 ? DType::f32 : dtype; }

struct HeadsOperand {
  std::string_view op, name;
  const Heads& heads;
};

void require_heads(const HeadsOperand& of, int64_t tokens, int64_t num_heads, int64_t head_dim, DType dtype) {
  const Heads& x = of.heads;
  require<ShapeError>(x.base.dtype() == dtype, "{} needs {} in {}, got {}", of.op, of.name, name_of(dtype), x.base);
  if (tokens == 0) return;
  const int64_t width = x.width(num_heads, head_dim);
  require<ShapeError>(x.token_stride >= width && x.stride(head_dim) >= head_dim,
                      "{}: {} has rows of {} elements {} apart: they overlap", of.op, of.name, width, x.token_stride);
  const int64_t last = x.offset + (tokens - 1) * x.token_stride + width;
  require<ShapeError>(x.offset >= 0 && last <= x.base.numel(), "{}: {} reaches elements [{}, {}) of {}", of.op, of.name,
                      x.offset, last, x.base);
}

/// The scales of the codes of heads.
void require_scales(std::string_view op, std::string_view name, const Tensor& scales, int64_t heads, int64_t tokens) {
  require<ShapeError>(
      scales.dtype() == DType::f32 && scales.rank() == 2 && scales.dim(0) == heads && scales.dim(1) >= tokens,
      "{} needs {} in f32, [{}, at least {}], got {}", op, name, heads, tokens, scales);
}

void check_spans(const AttentionShape& s) {
  int64_t query = 0;
  for (const AttentionSpan& span : s.spans) {
    require<ShapeError>(span.q_length >= 0 && span.k_begin >= 0 && span.k_length >= 0 && span.q_begin == query,
                        "Attention got a sequence of {} queries from token {} and {} keys from token {}, expected its "
                        "queries at {}",
                        span.q_length, span.q_begin, span.k_length, span.k_begin, query);
    query += span.q_length;
  }
}

void check_queries(const AttentionShape& s) {
  require<ShapeError>(s.num_heads > 0 && s.head_dim > 0 && s.v_head_dim >= 0 && s.batch >= 0 && s.q_length >= 0,
                      "Attention got {} heads, head_dim {}, v_head_dim {}, batch {}, q_length {}", s.num_heads,
                      s.head_dim, s.v_head_dim, s.batch, s.q_length);
  check_spans(s);
}

/// Keys and values of a dtype of their own: floats, or codes with their scales.
void check_keys(const Attention& op) {
  const DType dtype = op.k.base.dtype();
  require<ShapeError>(is_float(dtype) || dtype == DType::i8 || dtype == DType::u8,
                      "Attention needs k in a float dtype, i8 or u8 (E4M3), got {}", op.k.base);
  require<ShapeError>(dtype != DType::i8 || op.shape.head_dim <= kMostCodes,
                      "Attention takes heads of up to {} codes in i8, got {}", kMostCodes, op.shape.head_dim);
  const auto check_scales = [&](const char* name, const Tensor& scales) {
    require<ShapeError>(scales.defined() == op.reads_codes(), "Attention got {} {}, expected {} for k in {}",
                        scales.defined() ? "scales" : "no scales", name, op.reads_codes() ? "some" : "none",
                        name_of(dtype));
    if (scales) require_scales("Attention", name, scales, op.shape.num_kv_heads, op.shape.k_tokens());
  };
  check_scales("k_scales", op.k_scales);
  check_scales("v_scales", op.v_scales);
}

/// What the forward and the backward operation share; of_keys: the dtype of k and v.
template <class Op>
void check_common(const Op& op, DType of_keys) {
  const AttentionShape& s = op.shape;
  check_queries(s);
  require<ShapeError>(s.num_kv_heads > 0 && s.num_heads % s.num_kv_heads == 0,
                      "{} query heads cannot share {} key/value heads evenly", s.num_heads, s.num_kv_heads);
  require<ShapeError>(std::isfinite(s.softcap) && s.softcap >= 0,
                      "Attention got softcap {}: it must be 0 (off) or positive", s.softcap);
  require<ShapeError>(s.k_length >= 0 && s.window >= 0, "Attention got k_length {}, window {}", s.k_length, s.window);
  const DType dtype = op.q.base.dtype();
  require<ShapeError>(is_float(dtype), "Attention needs a floating-point dtype, got {}", name_of(dtype));
  require_heads({"Attention", "q", op.q}, s.q_tokens(), s.num_heads, s.head_dim, dtype);
  require_heads({"Attention", "k", op.k}, s.k_tokens(), s.num_kv_heads, s.head_dim, of_keys);
  require_heads({"Attention", "v", op.v}, s.k_tokens(), s.num_kv_heads, s.value_dim(), of_keys);
  if (op.sinks) require_tensor(op.sinks, s.num_heads, dtype, "sinks");
  require_tensor(op.lse, s.q_tokens() * s.num_heads, statistics_dtype(dtype), "lse");
}

/// The elements of a result of attention.
int64_t out_numel(const AttentionShape& s) { return s.q_tokens() * s.num_heads * s.value_dim(); }

}  // namespace

void check_shapes(const MatMul& op) {
  const Matrix a = fold(op.a, "a"), b = fold(op.b, "b"), c = fold(op.c, "c");
  const int64_t m = op.transpose_a ? a.columns : a.rows, n = op.transpose_b ? b.rows : b.columns;
  const int64_t a_k = op.transpose_a ? a.rows : a.columns, b_k = op.transpose_b ? b.columns : b.rows;
  require<ShapeError>(a_k == b_k && c.rows == m && c.columns == n, "MatMul cannot multiply {}{} by {}{} into {}", op.a,
                      op.transpose_a ? "^T" : "", op.b.values, op.transpose_b ? "^T" : "", op.c);
  const DType dtype = op.a.dtype();
  if (op.b.is_quantized()) check_codes("MatMul", "b", op.b);
  require<ShapeError>(is_float(dtype) && (op.b.is_quantized() || op.b.values.dtype() == dtype),
                      "MatMul needs a and b of one float dtype, got {} and {}", op.a, op.b.values);
  require<ShapeError>(op.c.dtype() == dtype || op.c.dtype() == DType::f32, "MatMul of {} writes {} or f32, not {}",
                      name_of(dtype), name_of(dtype), op.c);
  require<ShapeError>(!op.bias || (op.bias.numel() == n && op.bias.dtype() == dtype),
                      "MatMul needs a bias of {} elements of {}, got {}", n, name_of(dtype), op.bias);
}

void check_shapes(const EncodeHeads& op) {
  const DType from = op.from.base.dtype(), to = op.to.base.dtype();
  require<ShapeError>(is_float(from), "EncodeHeads needs from in a float dtype, got {}", op.from.base);
  require<ShapeError>(to == DType::i8 || to == DType::u8, "EncodeHeads needs to in i8 or u8 (E4M3), got {}",
                      op.to.base);
  require<ShapeError>(op.first >= 0 && op.num_heads > 0 && op.head_dim > 0,
                      "EncodeHeads got {} heads of {} from token {} on", op.num_heads, op.head_dim, op.first);
  require_heads({"EncodeHeads", "from", op.from}, op.tokens, op.num_heads, op.head_dim, from);
  require_heads({"EncodeHeads", "to", op.to}, op.first + op.tokens, op.num_heads, op.head_dim, to);
  require_scales("EncodeHeads", "scales", op.scales, op.num_heads, op.first + op.tokens);
}

void check_shapes(const Attention& op) {
  check_keys(op);
  check_common(op, op.k.base.dtype());
  require_tensor(op.out, out_numel(op.shape), result_dtype(op.out, op.q.base.dtype()), "out");
}

void check_shapes(const AttentionBackward& op) {
  check_common(op, op.q.base.dtype());
  const AttentionShape& s = op.shape;
  const DType dtype = op.q.base.dtype();
  require_tensor(op.out, out_numel(s), dtype, "out");
  require_tensor(op.d_out, out_numel(s), dtype, "d_out");
  require_heads({"Attention", "dq", op.dq}, s.q_tokens(), s.num_heads, s.head_dim, result_dtype(op.dq.base, dtype));
  require_heads({"Attention", "dk", op.dk}, s.k_tokens(), s.num_kv_heads, s.head_dim, result_dtype(op.dk.base, dtype));
  require_heads({"Attention", "dv", op.dv}, s.k_tokens(), s.num_kv_heads, s.value_dim(),
                result_dtype(op.dv.base, dtype));
  if (!op.d_sinks) return;
  require<ShapeError>(op.sinks.defined(), "Attention needs sinks to form d_sinks");
  require_tensor(op.d_sinks, s.num_heads, result_dtype(op.d_sinks, dtype), "d_sinks");
}

void check_shapes(const MergeAttention& op) {
  check_queries(op.shape);
  const DType dtype = op.out.dtype();
  require<ShapeError>(dtype == DType::f32 || dtype == DType::f64, "Attention needs out of f32 or f64 to merge, got {}",
                      op.out);
  const int64_t rows = op.shape.q_tokens() * op.shape.num_heads;
  require_tensor(op.out, out_numel(op.shape), dtype, "out");
  require_tensor(op.piece_out, out_numel(op.shape), dtype, "piece_out");
  require_tensor(op.lse, rows, dtype, "lse");
  require_tensor(op.piece_lse, rows, dtype, "piece_lse");
}

}  // namespace nought
