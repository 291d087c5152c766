#include "nought/autograd/low_rank.h"

#include "nought/autograd/detail.h"

namespace nought {

namespace {

/// Columns [begin, end) of x: x itself if it has no others, or else a copy of this category.
Tensor columns_of(const Context& context, const Tensor& x, int64_t begin, int64_t end,
                  Category category = Category::workspace) {
  const int64_t width = x.dim(-1), count = end - begin;
  if (count == width) return x;
  Tensor y = context.empty({x.rows(), count}, x.dtype(), category);
  context.run(
      CopyHeads{.from = {x, begin, width}, .to = {y, 0, count}, .tokens = x.rows(), .num_heads = 1, .head_dim = count});
  return y;
}

/// Writes, or adds, x to columns [begin, begin + its own) of y.
void put_columns(const Context& context, const Tensor& x, const Tensor& y, int64_t begin, bool accumulate) {
  const int64_t count = x.dim(-1);
  context.run(CopyHeads{.from = {x, 0, count},
                        .to = {y, begin, y.dim(-1)},
                        .tokens = x.rows(),
                        .num_heads = 1,
                        .head_dim = count,
                        .accumulate = accumulate});
}

void scale_by(const Context& context, const Tensor& x, double factor) {
  if (factor != 1) context.run(Scale{.x = x, .factor = factor});
}

/// x A^T of some columns, times their scale: what their B is multiplied by.
Tensor shrunk(const Context& context, const Tensor& all, int64_t first, const LowRankColumns& of) {
  const Tensor z = columns_of(context, all, first, first + of.rank, Category::activations);
  scale_by(context, z, of.scale);
  return z;
}

void expand(const Context& context, const Tensor& z, const LowRankColumns& of, const Tensor& y) {
  const bool all = of.end - of.begin == y.dim(-1);
  const Tensor part = all ? y : context.empty({z.rows(), of.end - of.begin}, y.dtype(), Category::workspace);
  context.run(MatMul{.a = z, .b = of.b.value(), .c = part, .transpose_b = true, .accumulate = all});
  if (!all) put_columns(context, part, y, of.begin, true);
}

/// x with what is dropped of it.
Tensor dropped(const Context& context, const Tensor& x, const LowRankDropout& dropout) {
  if (!dropout.active()) return x;
  Tensor y = context.empty(x.shape(), x.dtype(), Category::workspace);
  dropout.run(context, x, {y});
  return y;
}

/// dx of d_all A, where x lost what was dropped.
void add_to_dx(const Context& context, const Tensor& d_all, const ParameterView& a, const LowRankDropout& dropout,
               const GradSink& dx) {
  if (!dropout.active())
    return context.run(MatMul{.a = d_all, .b = a.value(), .c = dx.into, .accumulate = dx.accumulate});
  const Tensor whole = context.empty(dx.into.shape(), dx.into.dtype(), Category::workspace);
  context.run(MatMul{.a = d_all, .b = a.value(), .c = whole});
  dropout.run(context, whole, dx);
}

}  // namespace

void LowRankDropout::run(const Context& context, const Tensor& x, const GradSink& y) const {
  context.run(Dropout{.x = x,
                      .rows = rows,
                      .y = y.into,
                      .key = key,
                      .probability = probability,
                      .first_column = first_column,
                      .accumulate = y.accumulate});
}

Var add_low_rank(Tape& tape, const Var& y, const Var& x, const ParameterView& a,
                 const std::vector<LowRankColumns>& columns, const LowRankDropout& dropout) {
  const Context& context = tape.context();
  const Tensor all = context.empty({x.value.rows(), a.shape()[0]}, x.value.dtype());
  context.run(MatMul{.a = dropped(context, x.value, dropout), .b = a.value(), .c = all, .transpose_b = true});
  std::vector<Tensor> shrunken;
  bool trained = a.trained();
  int64_t first = 0;
  for (const LowRankColumns& each : columns) {
    shrunken.push_back(shrunk(context, all, first, each));
    expand(context, shrunken.back(), each, y.value);
    trained |= each.b.trained();
    first += each.rank;
  }
  return tape.record(
      y.value, {y, x, Wanted(trained)},
      [y = Var{{}, y.slot}, x = Saved(x, a.trained()), a, columns, shrunken, dropout](Gradients& gradients, Tensor dy) {
        const Context& context = gradients.context();
        const Tensor d_all = context.empty({dy.rows(), a.shape()[0]}, dy.dtype());
        const bool alone = columns.size() == 1;
        int64_t first = 0;
        for (size_t i = 0; i < columns.size(); ++i) {
          const LowRankColumns& of = columns[i];
          const Tensor d_part = columns_of(context, dy, of.begin, of.end);
          gradients.later(of.b, [d_part, z = shrunken[i]](const Context& context, const GradSink& db) {
            context.run(MatMul{.a = d_part, .b = z, .c = db.into, .transpose_a = true, .accumulate = db.accumulate});
          });
          const Tensor d = alone ? d_all : context.empty({dy.rows(), of.rank}, dy.dtype(), Category::workspace);
          context.run(MatMul{.a = d_part, .b = of.b.value(), .c = d});
          scale_by(context, d, of.scale);
          if (!alone) put_columns(context, d, d_all, first, false);
          first += of.rank;
        }
        if (a.trained())
          gradients.later(a, [x = x.prepared(context), d_all, dropout](const Context& context, const GradSink& da) {
            context.run(MatMul{.a = d_all,
                               .b = dropped(context, x(context), dropout),
                               .c = da.into,
                               .transpose_a = true,
                               .accumulate = da.accumulate});
          });
        if (const GradSink dx = gradients.sink(x)) add_to_dx(context, d_all, a, dropout, dx);
        gradients.give(y, std::move(dy));
      });
}

Var add_bias(Tape& tape, const Var& y, const ParameterView& bias, int64_t begin, int64_t end, double scale) {
  Tensor added = bias.value();
  if (scale != 1) {
    added = tape.context().empty(bias.shape(), y.value.dtype(), Category::workspace);
    tape.context().copy(bias.value(), added);
    scale_by(tape.context(), added, scale);
  }
  // Each token counts as a head of one token: all of them get the same.
  tape.context().run(CopyHeads{.from = {added, 0, end - begin},
                               .to = {y.value, begin, y.value.numel(), y.value.dim(-1)},
                               .tokens = 1,
                               .num_heads = y.value.rows(),
                               .head_dim = end - begin,
                               .broadcast = true,
                               .accumulate = true});
  return tape.record(
      y.value, {y, bias}, [y = Var{{}, y.slot}, bias, begin, end, scale](Gradients& gradients, Tensor dy) {
        const Context& context = gradients.context();
        if (const GradSink db = gradients.sink(bias)) {
          const Tensor part = columns_of(context, dy, begin, end);
          if (scale == 1) {
            context.run(SumRows{part, db.into, db.accumulate});
          } else {
            const Tensor sum = context.empty({end - begin}, statistics_dtype(dy.dtype()), Category::workspace);
            context.run(SumRows{part, sum});
            scale_by(context, sum, scale);
            detail::put(context, sum, db);
          }
        }
        gradients.give(y, std::move(dy));
      });
}

}  // namespace nought
