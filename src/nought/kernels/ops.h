// The argument struct of every operation: what it reads, what it writes, and what it means.
//
// Conventions: tensors are contiguous and row-major; the last dimension is the feature dimension and all others fold
// into `rows` (tokens). "float" means f64, f32, bf16 or f16, and one operation's tensors share it unless said
// otherwise. Sums, norms and softmax accumulate in fp32 (f64 for f64) whatever the dtype; a result is rounded once.
// `accumulate` adds to what the output holds instead of overwriting it. Outputs are allocated by the caller. Results
// do not depend on the number of threads. Each struct has a reference implementation in kernels/reference.
#pragma once

#include <cstdint>
#include <vector>

#include "nought/tensor/tensor.h"

namespace nought {

// --- matrix products ---

/// c = op(a) op(b) [+ bias] [+ c]. a: [M, K], b: [K, N], c: [M, N]; with transpose_a, a is stored as [K, M], with
/// transpose_b, b as [N, K]. Higher ranks fold to rows. a and b share a float dtype; c has theirs or f32. bias: [N],
/// dtype of a, optional.
struct MatMul {
  Tensor a, b, c, bias = {};
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false;
};

/// out[j] = sum over rows of x[i, j] [+ out[j]]: the gradient of a bias. x: [rows, n], out: [n]; out may be f32.
struct SumRows {
  Tensor x, out;
  bool accumulate = false;
};

// --- element-wise ---

/// out = a + b. out may be a or b.
struct Add {
  Tensor a, b, out;
};
/// x *= factor.
struct Scale {
  Tensor x;
  double factor = 1;
};
/// x = value, for every float dtype.
struct Fill {
  Tensor x;
  double value = 0;
};
/// y = x converted to y's float dtype (round to nearest even).
struct Cast {
  Tensor x, y;
};
/// into += x, where the two may have different float dtypes; the sum is rounded once.
struct AddTo {
  Tensor x, into;
};
/// out = inputs[0] + inputs[1] + ..., in that order, accumulated in fp32 (f64 for f64; exact for integers) and rounded
/// once. All of one dtype and size, integers too. out may be one of the inputs. Runs on the calling thread alone.
struct SumTensors {
  std::vector<Tensor> inputs;
  Tensor out;
};

// --- activations ---

enum class Activation : uint8_t { gelu_erf, gelu_tanh, silu };

/// y = activation(x).
struct Activate {
  Tensor x, y;
  Activation activation = Activation::gelu_tanh;
};
/// dx = dy * activation'(x). dx may be dy.
struct ActivateBackward {
  Tensor x, dy, dx;
  Activation activation = Activation::gelu_tanh;
};
/// y = activation(gate) * up, with gate_up: [rows, 2F] = [gate | up] per row, y: [rows, F]. silu is SwiGLU.
struct GatedActivate {
  Tensor gate_up, y;
  Activation activation = Activation::silu;
};
/// d_gate_up: [rows, 2F] from dy: [rows, F].
struct GatedActivateBackward {
  Tensor gate_up, dy, d_gate_up;
  Activation activation = Activation::silu;
};

/// x = cap * tanh(x / cap): scores and logits that stay within (-cap, cap).
struct Softcap {
  Tensor x;
  double cap = 1;
};
/// d *= 1 - (y / cap)^2, with y what Softcap made.
struct SoftcapBackward {
  Tensor y, d;
  double cap = 1;
};

// --- norms ---

/// y = x * rstd * (weight + weight_offset), rstd = 1 / sqrt(mean(x^2) + eps). x, y: [rows, n], weight: [n],
/// rstd: [rows] f32 (f64 for f64). arXiv 1910.07467; offset 1 is Gemma's.
struct RmsNorm {
  Tensor x, weight, y, rstd;
  double eps = 1e-6;
  double weight_offset = 0;
};
/// dx [+=] and d_weight [+=]. d_weight has weight's dtype or f32.
struct RmsNormBackward {
  Tensor x, weight, rstd, dy, dx, d_weight;
  double weight_offset = 0;
  bool accumulate_x = false, accumulate_weight = false;
};
/// y = (x - mean) * rstd * weight + bias. mean, rstd: [rows] f32 (f64 for f64). arXiv 1607.06450.
struct LayerNorm {
  Tensor x, weight, bias, y, mean, rstd;
  double eps = 1e-5;
};
struct LayerNormBackward {
  Tensor x, weight, mean, rstd, dy, dx, d_weight, d_bias;
  bool accumulate_x = false, accumulate_weight = false;
};

// --- embedding and positions ---

/// out[t] [+]= table[ids[t]]. table: [V, H] float, ids: [tokens] i32, out: [tokens, H]. Error if an id is not in [0,
/// V).
struct Embedding {
  Tensor table, ids, out;
  bool accumulate = false;
};
/// d_table[ids[t]] += d_out[t], added in order of t in fp32 and rounded once per row. Without accumulate, all other
/// rows become 0. d_table has d_out's dtype or f32.
struct EmbeddingBackward {
  Tensor d_out, ids, d_table;
  bool accumulate = false;
};

/// Where the heads of each token lie in a wider row: element (token, head, i) is base[offset + token * token_stride +
/// head * head_stride + i], base seen flat. So q, k and v may be parts of one packed projection, or rows of a cache.
struct Heads {
  Tensor base;
  int64_t offset = 0;
  int64_t token_stride = 0;
  int64_t head_stride = 0;  // 0: head_dim, the heads of a token lie side by side

  int64_t stride(int64_t head_dim) const { return head_stride > 0 ? head_stride : head_dim; }
  int64_t at(int64_t token, int64_t head, int64_t head_dim) const {
    return offset + token * token_stride + head * stride(head_dim);
  }
  /// From the first element of a token's heads to the end of its last head.
  int64_t width(int64_t num_heads, int64_t head_dim) const { return (num_heads - 1) * stride(head_dim) + head_dim; }
};

/// to[t, h] [+]= from[t, h] for num_heads heads of each token. With `broadcast`, `from` has one head: to[t, h] [+]=
/// from[t].
struct CopyHeads {
  Heads from, to;
  int64_t tokens = 0, num_heads = 0, head_dim = 0;
  bool broadcast = false, accumulate = false;
};
/// to[t] = sum over h of from[t, h], added in order of h: the gradient of a broadcast. `to` has one head.
struct SumHeads {
  Heads from, to;
  int64_t tokens = 0, num_heads = 0, head_dim = 0;
};

/// Rotary embedding in place (arXiv 2104.09864) on the first rotary_dim elements of each head. Pairs are (i, i + r/2),
/// or (2i, 2i+1) when interleaved. cos, sin: [max_positions, rotary_dim / 2] f32 (f64 for f64); positions: [tokens]
/// i32. `inverse` rotates back: the gradient.
struct Rope {
  Heads x;
  Tensor cos, sin, positions;
  int64_t num_heads = 0, head_dim = 0, rotary_dim = 0;
  bool interleaved = false, inverse = false;
};

// --- attention ---

/// Where one sequence lies: its queries among the tokens of q, its keys and values among those of k and v.
struct AttentionSpan {
  int64_t q_begin = 0, q_length = 0, k_begin = 0, k_length = 0;
};

/// out[b, i, h] = sum_j softmax_j(scale * q_i . k_j) v_j over the visible j. q: batch * q_length tokens of num_heads
/// heads, k, v: batch * k_length tokens of num_kv_heads heads (query head h reads kv head h / (num_heads /
/// num_kv_heads)). Query i sits at position k_length - q_length + i; causal: j <= that position; window > 0: and j >
/// position - window. out: [batch * q_length, num_heads * value_dim()]; lse: [batch, num_heads, q_length] f32 (f64 for
/// f64), the log of the sum of exponentials. Streaming softmax in blocks (arXiv 2205.14135): no T x T matrix in memory.
///
/// Sequences of different lengths, or with keys elsewhere, are given as spans in place of batch, q_length and k_length:
/// documents that were packed into a row, or sequences that each have a part of a cache. Nothing is computed between
/// sequences, and a sequence gets the same bits beside whatever others. Queries of the spans lie one behind the other
/// from token 0 on, and for the backward operation their keys too; lse: [num_heads, q_length] of each in turn.
///
/// softcap c > 0: scores become c * tanh(score / c) before the mask. sinks: [num_heads], dtype of out, optional: a
/// score per query head that takes part in the softmax (and in lse) and has no value, so that a head may attend to
/// nothing.
struct AttentionShape {
  int64_t batch = 0, q_length = 0, k_length = 0;
  int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  double scale = 1;
  bool causal = true;
  int64_t window = 0;
  double softcap = 0;
  int64_t v_head_dim = 0;  // 0: head_dim
  std::vector<AttentionSpan> spans = {};

  int64_t value_dim() const { return v_head_dim > 0 ? v_head_dim : head_dim; }
  int64_t num_sequences() const { return spans.empty() ? batch : static_cast<int64_t>(spans.size()); }
  AttentionSpan span(int64_t index) const {
    return spans.empty() ? AttentionSpan{index * q_length, q_length, index * k_length, k_length}
                         : spans[static_cast<size_t>(index)];
  }
  int64_t q_tokens() const { return spans.empty() ? batch * q_length : spans.back().q_begin + spans.back().q_length; }
  /// Up to the end of the last sequence's keys.
  int64_t k_tokens() const;
};
struct Attention {
  AttentionShape shape;
  Heads q, k, v;
  Tensor out, lse;
  Tensor sinks = {};
};
/// Overwrites dq, dk, dv (laid out by Heads) from d_out; recomputes the probabilities from q, k and lse. d_sinks [+=]:
/// [num_heads], dtype of out or f32, or undefined if nobody wants it.
struct AttentionBackward {
  AttentionShape shape;
  Heads q, k, v;
  Tensor out, lse, d_out;
  Heads dq, dk, dv;
  Tensor sinks = {}, d_sinks = {};
  bool accumulate_sinks = false;
};

// --- mixtures of experts ---

/// What the scores of experts are: softmax or sigmoid of the logits of all experts, or a softmax of the chosen ones.
enum class RouterScores : uint8_t { softmax, sigmoid, chosen_softmax };
/// How good a group of experts is: its best score, or the sum of its two best.
enum class GroupScore : uint8_t { best, best_two };

/// How a token chooses top_k of its experts, and what weights they get. Of equal scores, the lower index is chosen.
struct RouterRule {
  int64_t top_k = 2;
  RouterScores scores = RouterScores::softmax;
  /// With num_groups > 1, the experts outside of the kept_groups best groups count as 0 in the choice (arXiv
  /// 2405.04434).
  int64_t num_groups = 1, kept_groups = 1;
  GroupScore group_score = GroupScore::best;
  bool normalise = false;  // weights are divided by their sum
  double scaling = 1;      // and multiplied by this at last

  bool operator==(const RouterRule&) const = default;
};

/// Chooses the experts of each token and their weights, best first. logits: [tokens, experts] f32 or f64; choice_bias:
/// [experts] float, optional, added to the scores for the choice alone (arXiv 2408.15664); experts: [tokens, top_k]
/// i32; weights: [tokens, top_k], dtype of logits; probability_sums: [experts] f64, the sum over tokens of
/// softmax(logits).
struct Route {
  RouterRule rule;
  Tensor logits, choice_bias, experts, weights, probability_sums;
};
/// d_logits from d_weights; the choice has no gradient. d_probabilities: [experts], dtype of logits, optional: the
/// gradient of softmax(logits), the same for every token, as a function of the probability_sums has.
struct RouteBackward {
  RouterRule rule;
  Tensor logits, experts, d_weights, d_logits;
  Tensor d_probabilities = {};
};

/// out[i] = x[index[i]], or zeros where index[i] is -1. x: [n, H] float, index: [rows] i32, out: [rows, H].
struct GatherRows {
  Tensor x, index, out;
};
/// out[t] [+]= sum over s of weights[t, s] * x[index[t, s]], added in order of s in fp32; index -1 gives nothing.
/// x: [n, H] float, index: [tokens, k] i32, out: [tokens, H]; weights: [tokens, k] f32 (f64 for f64), ones if
/// undefined.
struct CombineRows {
  Tensor x, index, out, weights = {};
  bool accumulate = false;
};
/// y[i] = factors[i] * x[i]. x, y: [rows, n] float, y may be x; factors: [rows] f32 (f64 for f64).
struct ScaleRows {
  Tensor x, factors, y;
};
/// out[i] [+]= a[i] . b[i]. a, b: [rows, n] float; out: [rows] f32 (f64 for f64).
struct DotRows {
  Tensor a, b, out;
  bool accumulate = false;
};

/// y = (clamp(up, -limit, limit) + 1) * g * sigmoid(alpha * g), g = min(gate, limit): gpt_oss's SwiGLU. gate_up: [rows,
/// 2F] with gate and up in turn, y: [rows, F].
struct ClampedSwiglu {
  Tensor gate_up, y;
  double limit = 7, alpha = 1.702;
};
/// A clamped value has no gradient.
struct ClampedSwigluBackward {
  Tensor gate_up, dy, d_gate_up;
  double limit = 7, alpha = 1.702;
};

// --- loss ---

/// loss[i] = (logsumexp(logits[i]) - logits[i, target[i]]) * weights[i], 0 where target is ignore_index or the weight
/// is 0. logits: [n, V] float, targets: [n] i32, weights: [n] f32, or undefined for 1, loss: [n] f32 (f64 for f64).
/// With `gradient`, logits become (softmax - onehot) * gradient_scale * weights[i] (0 where the loss is left out).
/// Error if a target is neither ignore_index nor in [0, V).
struct CrossEntropy {
  Tensor logits, targets, loss, weights = {};
  bool gradient = false;
  double gradient_scale = 1;
  int32_t ignore_index = -100;
};

// --- optimizer ---

/// One pass of Adam (arXiv 1412.6980) or, with decoupled decay, AdamW (arXiv 1711.05101), as torch.optim computes it:
/// g = gradient * gradient_scale; [p *= 1 - lr * weight_decay | g += weight_decay * p]; m, v updated;
/// p -= lr / bias1 * m / (sqrt(v) / sqrt(bias2) + eps). parameter, exp_avg, exp_avg_sq: f32 of one size; gradient: any
/// float; parameter_copy (optional): the parameter rounded to its 16-bit dtype.
struct Adam {
  Tensor parameter, exp_avg, exp_avg_sq, gradient, parameter_copy = {};
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  double bias1 = 1, bias2 = 1;  // 1 - beta^step
  double gradient_scale = 1;
  bool decoupled_decay = true;
};

/// SGD as torch.optim.SGD computes it: g = gradient * gradient_scale + weight_decay * p; with a momentum_buffer b:
/// b = momentum * b + (1 - dampening) * g (the first step: b = g), and g becomes b, or g + momentum * b with nesterov;
/// p -= lr * g. momentum_buffer: f32, undefined without momentum.
struct Sgd {
  Tensor parameter, momentum_buffer, gradient, parameter_copy = {};
  double lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0;
  double gradient_scale = 1;
  bool nesterov = false, first = false;
};

/// Adagrad as torch.optim.Adagrad computes it: g = gradient * gradient_scale + weight_decay * p; sum += g^2;
/// p -= lr * g / (sqrt(sum) + eps). sum: f32.
struct Adagrad {
  Tensor parameter, sum, gradient, parameter_copy = {};
  double lr = 1e-2, eps = 1e-10, weight_decay = 0;
  double gradient_scale = 1;
};

/// Lion (arXiv 2302.06675): p *= 1 - lr * weight_decay; p -= lr * sign(beta1 * m + (1 - beta1) * g);
/// m = beta2 * m + (1 - beta2) * g. exp_avg (m): f32.
struct Lion {
  Tensor parameter, exp_avg, gradient, parameter_copy = {};
  double lr = 1e-4, beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
  double gradient_scale = 1;
};

/// Lamb's direction before its trust ratio (arXiv 1904.00962): m, v updated as in Adam;
/// direction = m / bias1 / (sqrt(v / bias2) + eps) + weight_decay * p. direction: f32.
struct LambDirection {
  Tensor parameter, exp_avg, exp_avg_sq, gradient, direction;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  double bias1 = 1, bias2 = 1;  // 1 - beta^step, or 1 without bias correction
  double gradient_scale = 1;
};

/// Muon's direction before it is orthogonalised: b = momentum * b + (1 - momentum) * g; direction = b, or with
/// nesterov momentum * b + (1 - momentum) * g. momentum_buffer (b), direction: f32.
struct MomentumDirection {
  Tensor momentum_buffer, gradient, direction;
  double momentum = 0.95, gradient_scale = 1;
  bool nesterov = true;
};

/// p = keep * p - step * direction, all f32. parameter_copy as in Adam.
struct ApplyDirection {
  Tensor parameter, direction, parameter_copy = {};
  double step = 1e-3, keep = 1;
};

/// Block-wise dynamic 8-bit codes (arXiv 2110.02861; the two maps are in kernels/dynamic_code.h): in each block of
/// `block` elements, scale = the element of largest magnitude, sign included, and codes = the nearest values of the map
/// to x / scale. So the largest element is exact, and quantizing what was dequantized changes nothing. x: [n] f32,
/// codes: [n] u8, scales: [ceil(n / block)] f32. For the unsigned map x >= 0, and what is not 0 gets no code of 0: a
/// second moment of 0 under a first one that is not would make a step without bounds.
struct Quantize8 {
  Tensor x, codes, scales;
  int64_t block = 256;
  bool is_signed = true;
};
/// x = map[codes] * scale of the block.
struct Dequantize8 {
  Tensor codes, scales, x;
  int64_t block = 256;
  bool is_signed = true;
};

/// y = x rounded to y's 16-bit float dtype, up or down at random, so that the mean is x (arXiv 2010.06192): element i
/// draws number first + i of `key`. What y can hold stays as it is; a finite x stays finite. x: [n] f32.
struct RoundStochastic {
  Tensor x, y;
  uint64_t key = 0;
  int64_t first = 0;
};

/// The two 8-bit formats of the OCP specification ("OFP8", 2023): e4m3 has no infinity and 448 as its largest value,
/// e5m2 has 57344.
enum class Fp8 : uint8_t { e4m3, e5m2 };
/// y = x * scale on the grid of an 8-bit format, to the nearest and ties to even, times 1 / scale: what a product of
/// 8-bit factors would read. Finite values saturate at the largest one. x, y: the same float dtype; with a power of two
/// as scale every value of both formats is exact in bf16.
struct RoundFp8 {
  Tensor x, y;
  Fp8 format = Fp8::e4m3;
  double scale = 1;
};
/// out[0] = max |x[i]| (f32), NaN if any is.
struct AbsMax {
  Tensor x, out;
};

/// out[0] = sum of x[i]^2 (f64), in fixed blocks of 65536 elements so that the result is the same on any number of
/// threads.
struct SumSquares {
  Tensor x, out;
};

}  // namespace nought
