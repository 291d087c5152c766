#include "nought/autograd/functions.h"

#include <algorithm>

#include "nought/autograd/detail.h"

namespace nought {

using detail::or_scratch;
using detail::rows_of_chunks;
using detail::scratch_like;
using detail::with_features;
using detail::writable;

namespace {

/// A weight as the product of a layer with FP8 reads it.
Weight rounded(const Context& context, const Fp8Rounding& round, const Weight& weight) {
  return weight.is_quantized() ? weight : Weight(round(context, weight.values));
}

}  // namespace

Var linear(Tape& tape, const Var& x, const WeightView& weight, const ParameterView& bias, WeightLayout layout,
           const Fp8Layer& fp8) {
  using Role = Fp8Recipe::Role;
  const Context& context = tape.context();
  const bool out_in = layout == WeightLayout::out_in, noted = tape.recording();
  const int64_t features = weight.shape()[out_in ? 0 : 1];
  const Weight values = weight.value();
  require<ConfigError>(!fp8.recipe || fp8.recipe->options().inputs || !values.is_quantized(),
                       "a weight {} of 8-bit codes cannot be rounded to fp8 as well: use one of the two",
                       values.shape());
  const Fp8Rounding round_x = fp8.rounding(context, x.value, Role::input, noted);
  const Fp8Rounding round_w = fp8.rounding(context, values.values, Role::weight, noted);
  Tensor y = context.empty(with_features(x.value, features), x.value.dtype());
  context.run(MatMul{.a = round_x(context, x.value),
                     .b = rounded(context, round_w, values),
                     .c = y,
                     .bias = bias.defined() ? bias.value() : Tensor{},
                     .transpose_b = out_in});
  const Saved kept(x, weight.trained());
  return tape.record(y, {x, weight, bias},
                     [x = kept, weight, bias, out_in, fp8, round_x, round_w](Gradients& gradients, const Tensor& d_y) {
                       const Context& context = gradients.context();
                       const Tensor dy = fp8.rounding(context, d_y, Role::gradient, true)(context, d_y);
                       if (weight.trained()) {
                         gradients.later(weight, [x = x.prepared(context), dy, out_in, round_x](const Context& context,
                                                                                                const GradSink& dw) {
                           const Tensor value = round_x(context, x(context));
                           context.run(MatMul{.a = out_in ? dy : value,
                                              .b = out_in ? value : dy,
                                              .c = dw.into,
                                              .transpose_a = true,
                                              .accumulate = dw.accumulate});
                         });
                       }
                       if (GradSink db = gradients.sink(bias)) context.run(SumRows{d_y, db.into, db.accumulate});
                       if (GradSink dx = gradients.sink(x))
                         context.run(MatMul{.a = dy,
                                            .b = rounded(context, round_w, weight.value()),
                                            .c = dx.into,
                                            .transpose_b = !out_in,
                                            .accumulate = dx.accumulate});
                     });
}

namespace {

void look_up_backward(Gradients& gradients, const Tensor& dy, const Tensor& ids, const WeightView& table) {
  gradients.later(table, [dy, ids](const Context& context, const GradSink& d) {
    context.run(EmbeddingBackward{dy, ids, d.into, d.accumulate});
  });
}

}  // namespace

Var embedding(Tape& tape, const Tensor& ids, const WeightView& table) {
  const Context& context = tape.context();
  Tensor y = context.empty({ids.numel(), table.shape()[1]}, table.dtype());
  context.run(Embedding{.table = table.value(), .ids = ids, .out = y});
  return tape.record(y, {table}, [ids, table](Gradients& gradients, const Tensor& dy) {
    look_up_backward(gradients, dy, ids, table);
  });
}

Var add_embedding(Tape& tape, const Var& x, const Tensor& ids, const WeightView& table) {
  tape.context().run(Embedding{.table = table.value(), .ids = ids, .out = x.value, .accumulate = true});
  return tape.record(x.value, {x, table}, [x, ids, table](Gradients& gradients, Tensor dy) {
    look_up_backward(gradients, dy, ids, table);
    gradients.give(x, std::move(dy));
  });
}

namespace {

/// y and rstd of x. The weight is read when this runs: later, when it is leased again, for a second computation.
struct RmsNormed {
  Tensor y, rstd;

  RmsNormed(const Context& context, const Tensor& x, const ParameterView& weight, double eps, double weight_offset)
      : y(context.empty(x.shape(), x.dtype())), rstd(context.empty({x.rows()}, statistics_dtype(x.dtype()))) {
    context.run(
        RmsNorm{.x = x, .weight = weight.value(), .y = y, .rstd = rstd, .eps = eps, .weight_offset = weight_offset});
  }
};

struct LayerNormed {
  Tensor y, mean, rstd;

  LayerNormed(const Context& context, const Tensor& x, const ParameterView& weight, const ParameterView& bias,
              double eps)
      : y(context.empty(x.shape(), x.dtype())),
        mean(context.empty({x.rows()}, statistics_dtype(x.dtype()))),
        rstd(context.empty({x.rows()}, statistics_dtype(x.dtype()))) {
    const Tensor scales = weight.value();
    const Tensor shifts =
        bias.defined() ? bias.value() : context.zeros(scales.shape(), scales.dtype(), Category::workspace);
    context.run(LayerNorm{x, scales, shifts, y, mean, rstd, eps});
  }
};

}  // namespace

Var rms_norm(Tape& tape, const Var& x, const ParameterView& weight, double eps, double weight_offset) {
  const RmsNormed normed(tape.context(), x.value, weight, eps, weight_offset);
  return tape.record_cheap(
      normed.y, {x, weight},
      [x, weight, rstd = normed.rstd, weight_offset](Gradients& gradients, const Tensor& dy) {
        const GradSink dx = or_scratch(gradients, gradients.sink(x), x.value);
        const GradSink dw = or_scratch(gradients, gradients.sink(weight), weight.value());
        gradients.context().run(RmsNormBackward{.x = x.value,
                                                .weight = weight.value(),
                                                .rstd = rstd,
                                                .dy = dy,
                                                .dx = dx.into,
                                                .d_weight = dw.into,
                                                .weight_offset = weight_offset,
                                                .accumulate_x = dx.accumulate,
                                                .accumulate_weight = dw.accumulate});
      },
      [x = x.value, weight, eps, weight_offset](const Context& context) {
        return RmsNormed(context, x, weight, eps, weight_offset).y;
      });
}

Var layer_norm(Tape& tape, const Var& x, const ParameterView& weight, const ParameterView& bias, double eps) {
  const LayerNormed normed(tape.context(), x.value, weight, bias, eps);
  return tape.record_cheap(
      normed.y, {x, weight, bias},
      [x, weight, bias, mean = normed.mean, rstd = normed.rstd](Gradients& gradients, const Tensor& dy) {
        const GradSink dx = or_scratch(gradients, gradients.sink(x), x.value);
        GradSink dw = gradients.sink(weight), db = gradients.sink(bias);
        if (!dw) dw = scratch_like(gradients, weight.value(), db.accumulate);
        if (!db) db = scratch_like(gradients, weight.value(), dw.accumulate);
        gradients.context().run(LayerNormBackward{.x = x.value,
                                                  .weight = weight.value(),
                                                  .mean = mean,
                                                  .rstd = rstd,
                                                  .dy = dy,
                                                  .dx = dx.into,
                                                  .d_weight = dw.into,
                                                  .d_bias = db.into,
                                                  .accumulate_x = dx.accumulate,
                                                  .accumulate_weight = dw.accumulate});
      },
      [x = x.value, weight, bias, eps](const Context& context) {
        return LayerNormed(context, x, weight, bias, eps).y;
      });
}

namespace {

Var record_sum(Tape& tape, Tensor sum, const Var& a, const Var& b) {
  // Only the slots are kept: the summands themselves are not needed.
  return tape.record(std::move(sum), {a, b},
                     [a = Var{{}, a.slot}, b = Var{{}, b.slot}](Gradients& gradients, Tensor d_sum) {
                       gradients.give(a, d_sum);
                       gradients.give(b, std::move(d_sum));
                     });
}

}  // namespace

Var add(Tape& tape, const Var& a, const Var& b) {
  Tensor sum = tape.context().empty(a.value.shape(), a.value.dtype());
  tape.context().run(Add{.a = a.value, .b = b.value, .out = sum});
  return record_sum(tape, std::move(sum), a, b);
}

Var add_to(Tape& tape, const Var& sum, const Var& x) {
  tape.context().run(AddTo{.x = x.value, .into = sum.value});
  return record_sum(tape, sum.value, sum, x);
}

Var scale(Tape& tape, const Var& x, double factor) {
  tape.context().run(Scale{.x = x.value, .factor = factor});
  return tape.record(x.value, {x}, [x = Var{{}, x.slot}, factor](Gradients& gradients, Tensor d) {
    d = writable(gradients.context(), std::move(d));
    gradients.context().run(Scale{.x = d, .factor = factor});
    gradients.give(x, std::move(d));
  });
}

Var columns(Tape& tape, const Var& x, int64_t begin, int64_t end) {
  const Context& context = tape.context();
  const int64_t width = x.value.dim(-1), tokens = x.value.rows(), count = end - begin;
  require<ShapeError>(0 <= begin && begin < end && end <= width, "columns [{}, {}) of {}", begin, end, x.value);
  Tensor y = context.empty({tokens, count}, x.value.dtype());
  context.run(CopyHeads{
      .from = {x.value, begin, width}, .to = {y, 0, count}, .tokens = tokens, .num_heads = 1, .head_dim = count});
  // Only the shape of x is needed.
  return tape.record(y, {x}, [x, begin, width, tokens, count](Gradients& gradients, const Tensor& dy) {
    const GradSink dx = gradients.sink(x);
    if (!dx) return;
    if (!dx.accumulate) gradients.context().zero(dx.into);
    gradients.context().run(CopyHeads{.from = {dy, 0, count},
                                      .to = {dx.into, begin, width},
                                      .tokens = tokens,
                                      .num_heads = 1,
                                      .head_dim = count,
                                      .accumulate = true});
  });
}

namespace {

Tensor activated(const Context& context, const Tensor& x, Activation activation) {
  Tensor y = context.empty(x.shape(), x.dtype());
  context.run(Activate{x, y, activation});
  return y;
}

Tensor clamped(const Context& context, const Tensor& x, double limit) {
  Tensor y = context.empty(x.shape(), x.dtype());
  context.run(Clamp{x, y, limit});
  return y;
}

Tensor gated_activated(const Context& context, const Tensor& gate_up, Activation activation) {
  Tensor y = context.empty(with_features(gate_up, gate_up.dim(-1) / 2), gate_up.dtype());
  context.run(GatedActivate{gate_up, y, activation});
  return y;
}

}  // namespace

Var activate(Tape& tape, const Var& x, Activation activation) {
  return tape.record_cheap(
      activated(tape.context(), x.value, activation), {x},
      [x, activation](Gradients& gradients, Tensor dy) {
        dy = writable(gradients.context(), std::move(dy));
        gradients.context().run(ActivateBackward{.x = x.value, .dy = dy, .dx = dy, .activation = activation});
        gradients.give(x, std::move(dy));
      },
      [x = x.value, activation](const Context& context) { return activated(context, x, activation); });
}

Var clamp(Tape& tape, const Var& x, double limit) {
  return tape.record_cheap(
      clamped(tape.context(), x.value, limit), {x},
      [x, limit](Gradients& gradients, Tensor dy) {
        dy = writable(gradients.context(), std::move(dy));
        gradients.context().run(ClampBackward{.x = x.value, .dy = dy, .dx = dy, .limit = limit});
        gradients.give(x, std::move(dy));
      },
      [x = x.value, limit](const Context& context) { return clamped(context, x, limit); });
}

Var gated_activate(Tape& tape, const Var& gate_up, Activation activation) {
  return tape.record_cheap(
      gated_activated(tape.context(), gate_up.value, activation), {gate_up},
      [gate_up, activation](Gradients& gradients, const Tensor& dy) {
        Tensor d = gradients.context().empty(gate_up.value.shape(), gate_up.value.dtype());
        gradients.context().run(GatedActivateBackward{gate_up.value, dy, d, activation});
        gradients.give(gate_up, std::move(d));
      },
      [x = gate_up.value, activation](const Context& context) { return gated_activated(context, x, activation); });
}

RowLoss cross_entropy_rows(const Tensor& targets, const Tensor& weights) {
  require<ShapeError>(!weights.defined() || weights.numel() == targets.numel(), "{} targets but {} weights",
                      targets.numel(), weights.numel());
  return [targets, weights](const Context& context, const LogitRows& rows) {
    const auto [begin, end] = rows.tokens;
    context.run(CrossEntropy{.logits = rows.logits,
                             .targets = targets.flat(begin, end),
                             .loss = rows.losses,
                             .weights = weights.defined() ? weights.flat(begin, end) : Tensor{},
                             .gradient = rows.gradient,
                             .gradient_scale = rows.gradient_scale});
  };
}

void entropy_parts(const Context& context, const RowLoss& rows, const LogitRows& some, int64_t vocabulary,
                   const Tensor& logs, const Tensor& means) {
  // The gradient of a cross-entropy by the logits is p - e_t: its product with them is the mean less z_t. It is formed
  // in place, on copies of a few rows, which stay in the caches; all ranks take as many.
  constexpr int64_t kWidened = int64_t{1} << 20;
  const int64_t count = some.logits.rows(), stride = std::max<int64_t>(kWidened / vocabulary, 16);
  for (int64_t begin = 0; begin < count; begin += stride) {
    const Interval own{begin, std::min(begin + stride, count)};
    const Interval tokens{some.tokens.begin + own.begin, some.tokens.begin + own.end};
    const Tensor part = some.logits.slice(own.begin, own.end);
    const Tensor wide = context.empty(part.shape(), logs.dtype(), Category::workspace),
                 gradient = context.empty(part.shape(), logs.dtype(), Category::workspace);
    context.run(Cast{.x = part, .y = wide});
    context.run(Cast{.x = part, .y = gradient});
    rows(context, {.tokens = tokens,
                   .logits = gradient,
                   .losses = logs.flat(tokens.begin, tokens.end),
                   .gradient = true,
                   .gradient_scale = 1});
    context.run(DotRows{.a = gradient, .b = wide, .out = means.flat(tokens.begin, tokens.end)});
  }
}

Var cross_entropy_head(Tape& tape, const Var& x, const WeightView& weight, const Tensor& targets, double gradient_scale,
                       double softcap) {
  require<ShapeError>(targets.numel() == x.value.rows(), "{} tokens but {} targets", x.value.rows(), targets.numel());
  return loss_head(tape, x, weight, cross_entropy_rows(targets), gradient_scale, softcap);
}

namespace {

/// Adds, or forms the gradients of, what is added to the logits of tokens [begin, end).
class LogitAdder {
 public:
  LogitAdder(const Tape& tape, const AddedLogits& added, bool recording) : tape_(tape), added_(added) {
    if (added.adapts() && recording && added.z.requires_grad())
      dz_ = tape.context().empty(added.z.value.shape(), added.z.value.dtype());
  }
  /// The bias is added by the product that makes the logits.
  Tensor bias() const { return added_.bias.defined() ? added_.bias.value() : Tensor{}; }
  void add(Interval tokens, const Tensor& x, const Tensor& logits) const {
    if (!added_.token_rows.empty()) put_token_logits(tape_.context(), x, added_.token_rows, logits);
    if (!added_.adapts()) return;
    tape_.context().run(MatMul{.a = added_.z.value.slice(tokens.begin, tokens.end),
                               .b = added_.b.value(),
                               .c = logits,
                               .transpose_b = true,
                               .accumulate = true});
  }
  /// dx: of these tokens, with what the gradients mean by the table.
  void walk_back(Interval tokens, const Tensor& x, const Weight& table, const Tensor& d_logits,
                 const Tensor& dx) const {
    const Context& context = tape_.context();
    if (const TokenRows& rows = added_.token_rows; !rows.empty())
      token_logits_backward(context, x, d_logits, table, rows, tape_.sink(rows.rows), dx);
    if (const GradSink bias = tape_.sink(added_.bias))
      context.run(SumRows{.x = d_logits, .out = bias.into, .accumulate = bias.accumulate});
    if (!added_.adapts()) return;
    const Tensor z = added_.z.value.slice(tokens.begin, tokens.end);
    if (const GradSink db = tape_.sink(added_.b))
      context.run(MatMul{.a = d_logits, .b = z, .c = db.into, .transpose_a = true, .accumulate = db.accumulate});
    if (dz_) context.run(MatMul{.a = d_logits, .b = added_.b.value(), .c = dz_.slice(tokens.begin, tokens.end)});
  }
  const Tensor& dz() const { return dz_; }

 private:
  const Tape& tape_;
  const AddedLogits& added_;
  Tensor dz_;
};

}  // namespace

Var pick_rows(Tape& tape, const Var& x, const Tensor& index) {
  const Context& context = tape.context();
  const Tensor y = context.empty({index.numel(), x.value.dim(-1)}, x.value.dtype());
  context.run(GatherRows{.x = x.value, .index = index, .out = y});
  return tape.record(y, {x}, [x = Saved(x, false), index](Gradients& gradients, const Tensor& dy) {
    if (GradSink dx = gradients.sink(x))
      gradients.context().run(
          EmbeddingBackward{.d_out = dy, .ids = index, .d_table = dx.into, .accumulate = dx.accumulate});
  });
}

Var known_loss(Tape& tape, const Var& x, const Tensor& loss, const Tensor& dx) {
  return tape.record(loss, {x},
                     [x = Var{{}, x.slot}, dx](Gradients& gradients, const Tensor&) { gradients.give(x, dx); });
}

Var loss_head(Tape& tape, const Var& x, const WeightView& weight, const RowLoss& rows_to_losses, double gradient_scale,
              double softcap, const AddedLogits& added) {
  const Context& context = tape.context();
  const DType dtype = x.value.dtype();
  const Weight table = weight.value();
  const int64_t tokens = x.value.rows(), hidden = x.value.dim(-1), vocabulary = table.dim(0);
  const bool recording =
                 tape.recording() && (x.requires_grad() || weight.trained() || added.z.requires_grad() ||
                                      added.b.trained() || added.bias.trained() || added.token_rows.rows.trained()),
             keeps_capped = recording && softcap > 0;
  const int64_t rows =
      rows_of_chunks(tokens, (keeps_capped ? 2 : 1) * vocabulary * size_of(dtype), detail::chunk_bytes(context));

  const Tensor flat_x = x.value.reshape({tokens, hidden});
  Tensor dx = recording && x.requires_grad() ? context.empty({tokens, hidden}, dtype) : Tensor{};
  const LogitAdder adder(tape, added, recording);
  Tensor losses = context.empty({tokens}, statistics_dtype(dtype), Category::workspace);
  Tensor logits = context.empty({rows, vocabulary}, dtype, Category::workspace);
  Tensor capped = keeps_capped ? context.empty(logits.shape(), dtype, Category::workspace) : Tensor{};
  for (int64_t begin = 0; begin < tokens; begin += rows) {
    const int64_t end = std::min(begin + rows, tokens);
    const Tensor chunk = flat_x.slice(begin, end), scores = logits.slice(0, end - begin);
    context.run(MatMul{.a = chunk, .b = table, .c = scores, .bias = adder.bias(), .transpose_b = true});
    adder.add({begin, end}, chunk, scores);
    if (softcap > 0) context.run(Softcap{.x = scores, .cap = softcap});
    const Tensor outputs = capped ? capped.slice(0, end - begin) : Tensor{};
    if (outputs) context.copy(scores, outputs);
    rows_to_losses(context, {.tokens = {begin, end},
                             .logits = scores,
                             .losses = losses.flat(begin, end),
                             .gradient = recording,
                             .gradient_scale = gradient_scale});
    if (!recording) continue;
    if (outputs) context.run(SoftcapBackward{.y = outputs, .d = scores, .cap = softcap});
    if (GradSink dw = tape.sink(weight))
      context.run(MatMul{.a = scores, .b = chunk, .c = dw.into, .transpose_a = true, .accumulate = dw.accumulate});
    const Tensor d_chunk = dx ? dx.slice(begin, end) : Tensor{};
    if (dx) context.run(MatMul{.a = scores, .b = table, .c = d_chunk});
    adder.walk_back({begin, end}, chunk, table, scores, d_chunk);
  }
  const Tensor total = context.empty({1}, DType::f64);
  context.run(SumElements{.x = losses, .out = total});
  return tape.record(
      total, {x, weight, added.z, added.b, added.bias, added.token_rows.rows},
      [x = Var{{}, x.slot}, dx, z = Var{{}, added.z.slot}, dz = adder.dz()](Gradients& gradients, const Tensor& seed) {
        if (seed.on_host() && seed.item() != 1)  // asking a device would hold up the step
          fail<Error>(
              "the gradients of a loss_head were formed with its gradient_scale; backward must start from it with seed "
              "1, "
              "got {}",
              seed.item());
        gradients.give(x, dx);
        gradients.give(z, dz);
      });
}

}  // namespace nought
