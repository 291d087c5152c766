#include "nought/kernels/work.h"

namespace nought {

namespace {

/// Bytes of the tensors that are there.
template <class... Tensors>
double bytes_of(const Tensors&... tensors) {
  return (0.0 + ... + (tensors.defined() ? static_cast<double>(tensors.bytes()) : 0.0));
}

/// Bytes of what was there and is added to.
double read_too(bool accumulate, const Tensor& tensor) { return accumulate ? bytes_of(tensor) : 0; }

double head_bytes(const Heads& heads, int64_t tokens, int64_t num_heads, int64_t head_dim) {
  return static_cast<double>(tokens * num_heads * head_dim * size_of(heads.base.dtype()));
}

/// q or dq (of as many elements), and k and v, or their gradients.
double query_bytes(const AttentionShape& s, const Heads& q) {
  return head_bytes(q, s.q_tokens(), s.num_heads, s.head_dim);
}
double key_value_bytes(const AttentionShape& s, const Heads& k) {
  return head_bytes(k, s.k_tokens(), s.num_kv_heads, s.head_dim + s.value_dim());
}

/// One product of queries and keys.
double product_of(const AttentionShape& shape) {
  double pairs = 0;
  for (int64_t i = 0; i < shape.num_sequences(); ++i)
    pairs += static_cast<double>(shape.span(i).q_length) * static_cast<double>(shape.span(i).k_length);
  return (shape.causal ? 1.0 : 2.0) * static_cast<double>(shape.num_heads * shape.head_dim) * pairs;
}

Work moved(double bytes) { return {.flops = 0, .bytes = bytes}; }

}  // namespace

Work work_of(const MatMul& op) {
  const int64_t inner = op.transpose_a ? op.a.rows() : op.a.dim(-1);
  return {.flops = 2.0 * static_cast<double>(op.c.numel()) * static_cast<double>(inner),
          .bytes = bytes_of(op.a, op.b, op.c, op.bias) + read_too(op.accumulate, op.c)};
}
Work work_of(const SumRows& op) { return moved(bytes_of(op.x, op.out) + read_too(op.accumulate, op.out)); }
Work work_of(const Add& op) { return moved(bytes_of(op.a, op.b, op.out)); }
Work work_of(const Scale& op) { return moved(2 * bytes_of(op.x)); }
Work work_of(const Fill& op) { return moved(bytes_of(op.x)); }
Work work_of(const Cast& op) { return moved(bytes_of(op.x, op.y)); }
Work work_of(const AddTo& op) { return moved(bytes_of(op.x) + 2 * bytes_of(op.into)); }
Work work_of(const SumTensors& op) {
  Work work = moved(bytes_of(op.out));
  for (const Tensor& input : op.inputs) work += moved(bytes_of(input));
  return work;
}
Work work_of(const Activate& op) { return moved(bytes_of(op.x, op.y)); }
Work work_of(const ActivateBackward& op) { return moved(bytes_of(op.x, op.dy, op.dx)); }
Work work_of(const GatedActivate& op) { return moved(bytes_of(op.gate_up, op.y)); }
Work work_of(const GatedActivateBackward& op) { return moved(bytes_of(op.gate_up, op.dy, op.d_gate_up)); }
Work work_of(const ClampedSwiglu& op) { return moved(bytes_of(op.gate_up, op.y)); }
Work work_of(const ClampedSwigluBackward& op) { return moved(bytes_of(op.gate_up, op.dy, op.d_gate_up)); }
Work work_of(const Softcap& op) { return moved(2 * bytes_of(op.x)); }
Work work_of(const SoftcapBackward& op) { return moved(bytes_of(op.y) + 2 * bytes_of(op.d)); }
Work work_of(const RmsNorm& op) { return moved(bytes_of(op.x, op.weight, op.y, op.rstd)); }
Work work_of(const RmsNormBackward& op) {
  return moved(bytes_of(op.x, op.weight, op.rstd, op.dy, op.dx, op.d_weight) + read_too(op.accumulate_x, op.dx) +
               read_too(op.accumulate_weight, op.d_weight));
}
Work work_of(const LayerNorm& op) { return moved(bytes_of(op.x, op.weight, op.bias, op.y, op.mean, op.rstd)); }
Work work_of(const LayerNormBackward& op) {
  return moved(bytes_of(op.x, op.weight, op.mean, op.rstd, op.dy, op.dx, op.d_weight, op.d_bias) +
               read_too(op.accumulate_x, op.dx) + read_too(op.accumulate_weight, op.d_weight) +
               read_too(op.accumulate_weight, op.d_bias));
}
Work work_of(const Embedding& op) {
  return moved(bytes_of(op.ids) + 2 * bytes_of(op.out) + read_too(op.accumulate, op.out));
}
Work work_of(const EmbeddingBackward& op) {
  // All rows are cleared, or those that are met are added to.
  return moved(bytes_of(op.d_out, op.ids) + (op.accumulate ? 2 * bytes_of(op.d_out) : bytes_of(op.d_table)));
}
Work work_of(const CopyHeads& op) {
  const double to = head_bytes(op.to, op.tokens, op.num_heads, op.head_dim);
  return moved(head_bytes(op.from, op.tokens, op.broadcast ? 1 : op.num_heads, op.head_dim) +
               (op.accumulate ? 2 : 1) * to);
}
Work work_of(const SumHeads& op) {
  return moved(head_bytes(op.from, op.tokens, op.num_heads, op.head_dim) +
               head_bytes(op.to, op.tokens, 1, op.head_dim));
}
Work work_of(const Rope& op) {
  return moved(2 * head_bytes(op.x, op.positions.numel(), op.num_heads, op.rotary_dim) + bytes_of(op.positions));
}
Work work_of(const Attention& op) {
  return {.flops = 2 * product_of(op.shape),
          .bytes = query_bytes(op.shape, op.q) + key_value_bytes(op.shape, op.k) + bytes_of(op.out, op.lse)};
}
Work work_of(const AttentionBackward& op) {
  // Five products: the scores again, and the gradients of scores, q, k and v.
  return {.flops = 5 * product_of(op.shape),
          .bytes = 2 * query_bytes(op.shape, op.q) + 2 * key_value_bytes(op.shape, op.k) +
                   bytes_of(op.out, op.lse, op.d_out)};
}
Work work_of(const Route& op) { return moved(bytes_of(op.logits, op.experts, op.weights)); }
Work work_of(const RouteBackward& op) { return moved(bytes_of(op.logits, op.experts, op.d_weights, op.d_logits)); }
Work work_of(const GatherRows& op) { return moved(bytes_of(op.index) + 2 * bytes_of(op.out)); }
Work work_of(const CombineRows& op) {
  const auto chosen = static_cast<double>(op.index.dim(-1));
  return moved(bytes_of(op.index, op.weights) + (chosen + 1) * bytes_of(op.out) + read_too(op.accumulate, op.out));
}
Work work_of(const ScaleRows& op) { return moved(bytes_of(op.x, op.factors, op.y)); }
Work work_of(const DotRows& op) { return moved(bytes_of(op.a, op.b, op.out) + read_too(op.accumulate, op.out)); }
Work work_of(const CrossEntropy& op) {
  return moved((op.gradient ? 2 : 1) * bytes_of(op.logits) + bytes_of(op.targets, op.loss, op.weights));
}
Work work_of(const Adam& op) {
  return moved(2 * bytes_of(op.parameter, op.exp_avg, op.exp_avg_sq) + bytes_of(op.gradient, op.parameter_copy));
}
Work work_of(const Sgd& op) {
  return moved(2 * bytes_of(op.parameter, op.momentum_buffer) + bytes_of(op.gradient, op.parameter_copy));
}
Work work_of(const Adagrad& op) {
  return moved(2 * bytes_of(op.parameter, op.sum) + bytes_of(op.gradient, op.parameter_copy));
}
Work work_of(const Lion& op) {
  return moved(2 * bytes_of(op.parameter, op.exp_avg) + bytes_of(op.gradient, op.parameter_copy));
}
Work work_of(const LambDirection& op) {
  return moved(2 * bytes_of(op.exp_avg, op.exp_avg_sq) + bytes_of(op.parameter, op.gradient, op.direction));
}
Work work_of(const MomentumDirection& op) {
  return moved(2 * bytes_of(op.momentum_buffer) + bytes_of(op.gradient, op.direction));
}
Work work_of(const ApplyDirection& op) {
  return moved(2 * bytes_of(op.parameter) + bytes_of(op.direction, op.parameter_copy));
}
Work work_of(const Quantize8& op) { return moved(bytes_of(op.x, op.codes, op.scales)); }
Work work_of(const Dequantize8& op) { return moved(bytes_of(op.x, op.codes, op.scales)); }
Work work_of(const RoundStochastic& op) { return moved(bytes_of(op.x, op.y)); }
Work work_of(const RoundFp8& op) { return moved(bytes_of(op.x, op.y)); }
Work work_of(const AbsMax& op) { return moved(bytes_of(op.x)); }
Work work_of(const SumSquares& op) { return moved(bytes_of(op.x)); }

}  // namespace nought
