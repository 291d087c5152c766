// The differentiable operations: one function each, which runs the forward kernel and records the backward one.
//
// Shapes: activations are [tokens, features]. Functions marked "in place" overwrite their input, whose producer does
// not need it for its own backward.
#pragma once

#include <functional>

#include "nought/autograd/attention.h"
#include "nought/autograd/fp8.h"
#include "nought/autograd/tape.h"
#include "nought/autograd/token_rows.h"

namespace nought {

/// How a linear weight is stored: [out, in] (torch.nn.Linear) or [in, out] (GPT-2's Conv1D).
enum class WeightLayout : uint8_t { out_in, in_out };

/// y = x W + b. x: [tokens, in], y: [tokens, out]. bias may be undefined. fp8: the factors of all three products are
/// rounded first; ConfigError if W is codes.
Var linear(Tape& tape, const Var& x, const WeightView& weight, const ParameterView& bias, WeightLayout layout,
           const Fp8Layer& fp8 = {});

/// y[t] = table[ids[t]]. ids: [tokens] i32. Error if an id is out of range.
Var embedding(Tape& tape, const Tensor& ids, const WeightView& table);
/// y = x + table[ids]: learned positions. In place.
Var add_embedding(Tape& tape, const Var& x, const Tensor& ids, const WeightView& table);

/// The weight counts as weight + weight_offset (Gemma's is 1).
Var rms_norm(Tape& tape, const Var& x, const ParameterView& weight, double eps, double weight_offset = 0);
/// bias may be undefined.
Var layer_norm(Tape& tape, const Var& x, const ParameterView& weight, const ParameterView& bias, double eps);

Var add(Tape& tape, const Var& a, const Var& b);
/// sum + x, in place of the sum.
Var add_to(Tape& tape, const Var& sum, const Var& x);
/// x times a constant. In place.
Var scale(Tape& tape, const Var& x, double factor);
/// Columns [begin, end) of x, as a tensor of its own.
Var columns(Tape& tape, const Var& x, int64_t begin, int64_t end);
Var activate(Tape& tape, const Var& x, Activation activation);
/// x within [-limit, limit], and the nearer end outside, whose gradient is 0.
Var clamp(Tape& tape, const Var& x, double limit);
/// gate_up: [tokens, 2F] = [gate | up] -> activation(gate) * up: [tokens, F].
Var gated_activate(Tape& tape, const Var& gate_up, Activation activation);

/// Rows of x: y[i] = x[index[i]]. index: [rows] i32.
Var pick_rows(Tape& tape, const Var& x, const Tensor& index);
/// A loss, f64 [1], whose gradient by x is known already: backward() must start from it with seed 1.
Var known_loss(Tape& tape, const Var& x, const Tensor& loss, const Tensor& dx);

/// Some tokens on their way from logits to losses.
struct LogitRows {
  Interval tokens;        // which tokens of the batch these are
  Tensor logits;          // [tokens, vocabulary]
  Tensor losses;          // [tokens] f32 (f64 for f64): to be written
  bool gradient = false;  // the logits become the gradients of the losses, times gradient_scale
  double gradient_scale = 1;
};
using RowLoss = std::function<void(const Context&, const LogitRows&)>;
/// CrossEntropy against targets ([tokens] i32), each times its weight (f32 of as many elements; undefined: 1).
RowLoss cross_entropy_rows(const Tensor& targets, const Tensor& weights = {});

/// What the entropy of each row's probabilities is the difference of, less if the target's logit is z_t: with l the
/// logarithm of the sum of exponentials, logs gets l - z_t, and means the mean of the logits by their probabilities
/// less z_t. losses of `rows` are cross-entropies without weights; both are 0 where the target is ignored. vocabulary:
/// the columns of all ranks, where each has some: then these are parts, as losses are.
void entropy_parts(const Context& context, const RowLoss& rows, const LogitRows& some, int64_t vocabulary,
                   const Tensor& logs, const Tensor& means);

/// What is added to logits: z B^T of an adapter, z: [tokens, rank], b: [vocabulary, rank], and a bias, [vocabulary].
/// The logits of some tokens are replaced first.
struct AddedLogits {
  Var z = {};
  ParameterView b = {};
  ParameterView bias = {};
  TokenRows token_rows = {};

  bool adapts() const { return b.defined(); }
};

/// The sum of the losses of the logits x W^T, f64 [1]. x: [tokens, hidden], weight: [vocabulary, hidden]. Works in
/// chunks of tokens: the logits of all tokens never exist.
///
/// When recording, the gradients are formed in the same pass over the chunks (logits are made once), multiplied by
/// gradient_scale: the scale of the loss must be given here, and backward() must start from this value with seed 1.
/// softcap c > 0: the logits are c * tanh(x W^T / c).
Var loss_head(Tape& tape, const Var& x, const WeightView& weight, const RowLoss& rows, double gradient_scale,
              double softcap = 0, const AddedLogits& added = {});
/// loss_head() with cross-entropy. targets: [tokens] i32, -100 is ignored.
Var cross_entropy_head(Tape& tape, const Var& x, const WeightView& weight, const Tensor& targets, double gradient_scale,
                       double softcap = 0);

}  // namespace nought
