// run_experts(): the products of all experts over tokens sorted by expert, and their gradients.
//
// Forward keeps the gate_up products, and the rows that came from other ranks: rows of this rank's tokens and
// activations are formed again on the way back, and the gradient of a routing weight needs no expert's output, since
// d_out . (W a) = (W^T d_out) . a.
#include "nought/autograd/detail.h"
#include "nought/autograd/token_dispatch.h"

namespace nought {
namespace {

/// One expert's part of a tensor of all experts, [E, ...].
Tensor part_of(const Tensor& all, size_t expert) {
  const auto e = static_cast<int64_t>(expert);
  if (all.rank() == 2) return all.flat(e * all.dim(1), (e + 1) * all.dim(1));
  return all.slice(e, e + 1).reshape({all.dim(1), all.dim(2)});
}

Weight part_of(const Weight& all, size_t expert) {
  const auto e = static_cast<int64_t>(expert);
  return all.slice(e, e + 1).reshape({all.dim(1), all.dim(2)});
}

Tensor optional_value(const ParameterView& parameter) { return parameter.defined() ? parameter.value() : Tensor{}; }

Tensor added_down_bias(const ExpertWeights& experts) {
  return experts.adds_down_bias ? optional_value(experts.down_bias) : Tensor{};
}

/// c[block] = a[block] W_e (+ bias_e) for every expert's block of rows; W_e^T instead with transpose.
void multiply_blocks(const Context& context, const std::vector<Interval>& blocks, const Tensor& a,
                     const Weight& weights, bool transpose, const Tensor& bias, const Tensor& c) {
  for (size_t e = 0; e < blocks.size(); ++e) {
    const auto [begin, end] = blocks[e];
    if (begin == end) continue;
    context.run(MatMul{.a = a.slice(begin, end),
                       .b = part_of(weights, e),
                       .c = c.slice(begin, end),
                       .bias = bias ? part_of(bias, e) : Tensor{},
                       .transpose_b = transpose});
  }
}

/// The gradient of each expert's weight from its block of inputs x and of output gradients dy; 0 without tokens.
void weight_gradients(const Context& context, const std::vector<Interval>& blocks, const Tensor& x, const Tensor& dy,
                      bool out_in, const GradSink& sink) {
  for (size_t e = 0; e < blocks.size(); ++e) {
    const auto [begin, end] = blocks[e];
    const Tensor into = part_of(sink.into, e);
    if (begin == end) {
      if (!sink.accumulate) context.zero(into);
      continue;
    }
    const Tensor x_rows = x.slice(begin, end), dy_rows = dy.slice(begin, end);
    context.run(MatMul{.a = out_in ? dy_rows : x_rows,
                       .b = out_in ? x_rows : dy_rows,
                       .c = into,
                       .transpose_a = true,
                       .accumulate = sink.accumulate});
  }
}

/// What an adapter has of one expert.
struct LowRankOfExpert {
  Tensor shrink, expand;
  double scale;
  bool out_in;

  int64_t rank() const { return shrink.dim(out_in ? 0 : 1); }
  /// scale * (x -> rank), with expand's inputs as columns.
  void shrunk(const Context& context, const Tensor& x, const Tensor& z) const {
    context.run(MatMul{.a = x, .b = shrink, .c = z, .transpose_b = out_in});
    if (scale != 1) context.run(Scale{.x = z, .factor = scale});
  }
  /// scale * the gradient of what shrink gives.
  void shrunk_gradient(const Context& context, const Tensor& dy, const Tensor& d) const {
    context.run(MatMul{.a = dy, .b = expand, .c = d, .transpose_b = !out_in});
    if (scale != 1) context.run(Scale{.x = d, .factor = scale});
  }
};

/// body(what is added to an expert, its block) for each expert that has rows.
void for_each_low_rank(const std::vector<Interval>& blocks, const ExpertLowRank& added,
                       const std::function<void(const LowRankOfExpert&, Interval)>& body) {
  if (!added.defined()) return;
  const Tensor shrink = added.shrink.value(), expand = added.expand.value();
  for (size_t e = 0; e < blocks.size(); ++e)
    if (!blocks[e].empty()) body({part_of(shrink, e), part_of(expand, e), added.scale, added.out_in}, blocks[e]);
}

/// c[block] += what is added of x[block], for every expert's block of rows.
void add_low_rank(const Context& context, const std::vector<Interval>& blocks, const Tensor& x,
                  const ExpertLowRank& added, const Tensor& c) {
  for_each_low_rank(blocks, added, [&](const LowRankOfExpert& of, Interval block) {
    const Tensor z = context.empty({block.size(), of.rank()}, x.dtype(), Category::workspace);
    of.shrunk(context, x.slice(block.begin, block.end), z);
    context.run(MatMul{
        .a = z, .b = of.expand, .c = c.slice(block.begin, block.end), .transpose_b = of.out_in, .accumulate = true});
  });
}

/// dx[block] += what dy[block] gives.
void add_low_rank_dx(const Context& context, const std::vector<Interval>& blocks, const Tensor& dy,
                     const ExpertLowRank& added, const Tensor& dx) {
  for_each_low_rank(blocks, added, [&](const LowRankOfExpert& of, Interval block) {
    const Tensor d = context.empty({block.size(), of.rank()}, dy.dtype(), Category::workspace);
    of.shrunk_gradient(context, dy.slice(block.begin, block.end), d);
    context.run(MatMul{
        .a = d, .b = of.shrink, .c = dx.slice(block.begin, block.end), .transpose_b = !of.out_in, .accumulate = true});
  });
}

/// The gradients of both factors of every expert; 0 without tokens.
void low_rank_gradients(Gradients& gradients, const std::vector<Interval>& blocks, const Tensor& x, const Tensor& dy,
                        const ExpertLowRank& added) {
  if (!added.defined() || !added.trained()) return;
  const Context& context = gradients.context();
  const int64_t rank = added.shrink.shape()[added.out_in ? 1 : 2];
  const Tensor z = context.empty({x.rows(), rank}, x.dtype(), Category::workspace),
               d = context.empty(z.shape(), x.dtype(), Category::workspace);
  for_each_low_rank(blocks, added, [&](const LowRankOfExpert& of, Interval block) {
    of.shrunk(context, x.slice(block.begin, block.end), z.slice(block.begin, block.end));
    of.shrunk_gradient(context, dy.slice(block.begin, block.end), d.slice(block.begin, block.end));
  });
  const auto form = [&](const ParameterView& factor, const Tensor& in, const Tensor& out) {
    gradients.later(factor, [in, out, blocks, out_in = added.out_in](const Context& on, const GradSink& sink) {
      weight_gradients(on, blocks, in, out, out_in, sink);
    });
  };
  form(added.expand, z, dy);
  form(added.shrink, x, d);
}

void bias_gradients(Gradients& gradients, const std::vector<Interval>& blocks, const Tensor& dy,
                    const ParameterView& bias) {
  const Context& context = gradients.context();
  const GradSink sink = gradients.sink(bias);
  if (!sink) return;
  for (size_t e = 0; e < blocks.size(); ++e) {
    const auto [begin, end] = blocks[e];
    const Tensor into = part_of(sink.into, e);
    if (begin < end) {
      context.run(SumRows{.x = dy.slice(begin, end), .out = into, .accumulate = sink.accumulate});
    } else if (!sink.accumulate) {
      context.zero(into);
    }
  }
}

Tensor activate(const Context& context, const ExpertActivation& activation, const TokenDispatch& dispatch,
                const Tensor& gate_up) {
  Tensor y = dispatch.make_rows(context, gate_up.dim(1) / 2, gate_up.dtype());
  if (activation.clamped) {
    context.run(ClampedSwiglu{.gate_up = gate_up, .y = y, .limit = activation.limit, .alpha = activation.alpha});
  } else {
    context.run(GatedActivate{.gate_up = gate_up, .y = y, .activation = activation.activation});
  }
  return y;
}

Tensor activate_backward(const Context& context, const ExpertActivation& activation, const TokenDispatch& dispatch,
                         const Tensor& gate_up, const Tensor& dy) {
  Tensor d = dispatch.make_rows(context, gate_up.dim(1), gate_up.dtype());
  if (activation.clamped) {
    context.run(ClampedSwigluBackward{
        .gate_up = gate_up, .dy = dy, .d_gate_up = d, .limit = activation.limit, .alpha = activation.alpha});
  } else {
    context.run(
        GatedActivateBackward{.gate_up = gate_up, .dy = dy, .d_gate_up = d, .activation = activation.activation});
  }
  return d;
}

/// What backward keeps of forward.
struct Experts {
  Saved x;
  Var weights;
  TokenDispatch dispatch;
  ExpertWeights parameters;
  ExpertActivation activation;
  Tensor gate_up;  // [rows, 2F]
  Tensor x_rows;   // [rows, H]; undefined if it is cheap to form again: nothing comes from other ranks
};

/// d_weights of the routing, from the gradients of the activations (before they are weighted) and of the rows.
void give_routing_gradient(Gradients& gradients, const Experts& saved, const Tensor& activated,
                           const Tensor& d_activated, const Tensor& d_rows) {
  const GradSink sink = gradients.sink(saved.weights);
  if (!sink) return;
  const Context& context = gradients.context();
  const std::vector<Interval>& blocks = saved.dispatch.blocks();
  const Tensor d = saved.dispatch.make_rows(context, 1, saved.weights.value.dtype());
  context.run(DotRows{.a = d_activated, .b = activated, .out = d});
  if (const Tensor bias = added_down_bias(saved.parameters)) {
    for (size_t e = 0; e < blocks.size(); ++e) {
      const auto [begin, end] = blocks[e];
      if (begin == end) continue;
      context.run(MatMul{.a = d_rows.slice(begin, end),
                         .b = part_of(bias, e).reshape({1, bias.dim(1)}),
                         .c = d.slice(begin, end),
                         .transpose_b = true,
                         .accumulate = true});
    }
  }
  saved.dispatch.give_to_choices(context, d, sink);
}

void run_backward(Gradients& gradients, const Experts& saved, const Tensor& d_out) {
  const Context& context = gradients.context();
  const TokenDispatch& dispatch = saved.dispatch;
  const std::vector<Interval>& blocks = dispatch.blocks();
  const ExpertWeights& parameters = saved.parameters;
  const DType dtype = d_out.dtype();
  const int64_t hidden = d_out.dim(-1), width = saved.gate_up.dim(1) / 2;

  const Tensor d_rows = dispatch.rows_of_tokens(context, d_out);  // [rows, H]
  const Tensor activated = activate(context, saved.activation, dispatch, saved.gate_up);
  const Tensor d_activated = dispatch.make_rows(context, width, dtype);
  multiply_blocks(context, blocks, d_rows, parameters.down.value(), !parameters.out_in, {}, d_activated);
  add_low_rank_dx(context, blocks, d_rows, parameters.down_added, d_activated);
  give_routing_gradient(gradients, saved, activated, d_activated, d_rows);

  if (saved.weights.value) {
    const Tensor weights = dispatch.rows_of_choices(context, saved.weights.value);
    context.run(ScaleRows{.x = d_rows, .factors = weights, .y = d_rows});
    context.run(ScaleRows{.x = d_activated, .factors = weights, .y = d_activated});
  }
  const auto form = [&](const WeightView& weight, const Tensor& x, const Tensor& dy) {
    gradients.later(weight, [x, dy, blocks, out_in = parameters.out_in](const Context& on, const GradSink& sink) {
      weight_gradients(on, blocks, x, dy, out_in, sink);
    });
  };
  form(parameters.down, activated, d_rows);
  low_rank_gradients(gradients, blocks, activated, d_rows, parameters.down_added);
  bias_gradients(gradients, blocks, d_rows, parameters.down_bias);

  const Tensor d_gate_up = activate_backward(context, saved.activation, dispatch, saved.gate_up, d_activated);
  const Tensor x_rows =
      saved.x_rows ? saved.x_rows : dispatch.rows_of_tokens(context, saved.x.prepared(context)(context));
  form(parameters.gate_up, x_rows, d_gate_up);
  low_rank_gradients(gradients, blocks, x_rows, d_gate_up, parameters.gate_up_added);
  bias_gradients(gradients, blocks, d_gate_up, parameters.gate_up_bias);
  if (const GradSink dx = gradients.sink(saved.x)) {
    const Tensor dx_rows = dispatch.make_rows(context, hidden, dtype);
    multiply_blocks(context, blocks, d_gate_up, parameters.gate_up.value(), !parameters.out_in, {}, dx_rows);
    add_low_rank_dx(context, blocks, d_gate_up, parameters.gate_up_added, dx_rows);
    dispatch.sum_to_tokens(context, dx_rows, dx);
  }
}

}  // namespace

Var run_experts(Tape& tape, const Var& x, const Var& weights, const TokenDispatch& dispatch,
                const ExpertWeights& experts, const ExpertActivation& activation) {
  const Context& context = tape.context();
  const DType dtype = x.value.dtype();
  const int64_t hidden = x.value.dim(-1), width = experts.gate_up.shape()[experts.out_in ? 1 : 2];
  Tensor gate_up = dispatch.make_rows(context, width, dtype, Category::activations), saved_rows;
  {
    const bool keeps = tape.recording() && dispatch.exchanges();
    const Tensor x_rows =
        dispatch.rows_of_tokens(context, x.value, keeps ? Category::activations : Category::workspace);
    if (keeps) saved_rows = x_rows;
    multiply_blocks(context, dispatch.blocks(), x_rows, experts.gate_up.value(), experts.out_in,
                    optional_value(experts.gate_up_bias), gate_up);
    add_low_rank(context, dispatch.blocks(), x_rows, experts.gate_up_added, gate_up);
  }
  const Tensor y = dispatch.make_rows(context, hidden, dtype);
  {
    const Tensor activated = activate(context, activation, dispatch, gate_up);
    multiply_blocks(context, dispatch.blocks(), activated, experts.down.value(), experts.out_in,
                    added_down_bias(experts), y);
    add_low_rank(context, dispatch.blocks(), activated, experts.down_added, y);
  }
  Tensor out = context.empty({x.value.rows(), hidden}, dtype);
  dispatch.sum_to_tokens(context, y, {.into = out}, weights.value);
  const Wanted added(experts.gate_up_added.trained() || experts.down_added.trained());
  return tape.record(out, {x, weights, experts.gate_up, experts.gate_up_bias, experts.down, experts.down_bias, added},
                     [saved = Experts{Saved(x), weights, dispatch, experts, activation, gate_up, saved_rows}](
                         Gradients& gradients, const Tensor& d_out) { run_backward(gradients, saved, d_out); });
}

}  // namespace nought
