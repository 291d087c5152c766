// The differentiable operations: one function each, which runs the forward kernel and records the backward one.
//
// Shapes: activations are [tokens, features]. Functions marked "in place" overwrite their input, whose producer does
// not need it for its own backward.
#pragma once

#include "nought/autograd/tape.h"

namespace nought {

/// How a linear weight is stored: [out, in] (torch.nn.Linear) or [in, out] (GPT-2's Conv1D).
enum class WeightLayout : uint8_t { out_in, in_out };

/// y = x W + b. x: [tokens, in], y: [tokens, out]. bias may be undefined.
Var linear(Tape& tape, const Var& x, const ParameterView& weight, const ParameterView& bias, WeightLayout layout);

/// y[t] = table[ids[t]]. ids: [tokens] i32. Error if an id is out of range.
Var embedding(Tape& tape, const Tensor& ids, const ParameterView& table);
/// y = x + table[ids]: learned positions. In place.
Var add_embedding(Tape& tape, const Var& x, const Tensor& ids, const ParameterView& table);

Var rms_norm(Tape& tape, const Var& x, const ParameterView& weight, double eps);
Var layer_norm(Tape& tape, const Var& x, const ParameterView& weight, const ParameterView& bias, double eps);

Var add(Tape& tape, const Var& a, const Var& b);
Var activate(Tape& tape, const Var& x, Activation activation);
/// gate_up: [tokens, 2F] = [gate | up] -> activation(gate) * up: [tokens, F].
Var gated_activate(Tape& tape, const Var& gate_up, Activation activation);

/// The layout of a packed projection [tokens, (num_heads + 2 num_kv_heads) * head_dim] = [q | k | v].
struct PackedHeads {
  int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  int64_t width() const { return (num_heads + 2 * num_kv_heads) * head_dim; }
  Heads q(const Tensor& qkv) const { return {qkv, 0, width()}; }
  Heads k(const Tensor& qkv) const { return {qkv, num_heads * head_dim, width()}; }
  Heads v(const Tensor& qkv) const { return {qkv, (num_heads + num_kv_heads) * head_dim, width()}; }
};

/// Tables of cos and sin, [max_positions, rotary_dim / 2].
struct RopeTables {
  Tensor cos, sin;
  int64_t rotary_dim = 0;
  bool interleaved = false;
};

/// Rotates q and k of a packed projection. positions: [tokens] i32. In place.
Var rope(Tape& tape, const Var& qkv, const PackedHeads& heads, const RopeTables& tables, const Tensor& positions);

/// Self-attention over batch sequences of `length` tokens -> [tokens, num_heads * head_dim].
struct AttentionOptions {
  int64_t batch = 0, length = 0;
  double scale = 1;
  bool causal = true;
  int64_t window = 0;
};
Var attention(Tape& tape, const Var& qkv, const PackedHeads& heads, const AttentionOptions& options);

/// The summed cross-entropy of softmax(x W^T) against targets, f64 [1]. x: [tokens, hidden], weight: [vocabulary,
/// hidden], targets: [tokens] i32, -100 is ignored. Works in chunks of tokens: the logits of all tokens never exist.
///
/// When recording, the gradients are formed in the same pass over the chunks (logits are made once), multiplied by
/// gradient_scale: the scale of the loss must be given here, and backward() must start from this value with seed 1.
Var cross_entropy_head(Tape& tape, const Var& x, const ParameterView& weight, const Tensor& targets,
                       double gradient_scale);

}  // namespace nought
