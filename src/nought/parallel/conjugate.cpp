#include "nought/parallel/conjugate.h"

#include <algorithm>
#include <utility>

#include "nought/autograd/detail.h"
#include "nought/comm/flight_recorder.h"

namespace nought {

namespace {

void all_reduce(const Context& context, const Tensor& x, const TensorRanks& ranks) {
  const FlightSubject subject(ranks.group(), "activations");
  ranks.group().wait(ranks.group().all_reduce(x), *context.stream);
}

/// The tokens of all slices. Tokens that do not divide lie in a tensor with some rows more.
Tensor gathered(const Context& context, const Tensor& slice, const TokenSlices& slices) {
  require<ShapeError>(slice.rows() == slices.rows(), "a slice {} of {} tokens that {} ranks share", slice,
                      slices.tokens, slices.ranks.size());
  const Tensor all = context.empty({slices.all_rows(), slice.dim(-1)}, slice.dtype());
  const FlightSubject subject(slices.ranks.group(), "activations");
  slices.ranks.group().wait(slices.ranks.group().all_gather(slice, all), *context.stream);
  return all.slice(0, slices.tokens);
}

/// x with rows of zeros behind, as many as all slices have together.
Tensor padded(const Context& context, const Tensor& x, const TokenSlices& slices) {
  if (slices.all_rows() == slices.tokens) return x;
  Tensor all = context.empty({slices.all_rows(), x.dim(-1)}, x.dtype(), Category::workspace);
  context.copy(x, all.slice(0, slices.tokens));
  context.zero(all.slice(slices.tokens, slices.all_rows()));
  return all;
}

/// This rank's slice of the sum over the ranks.
Tensor scattered(const Context& context, const Tensor& x, const TokenSlices& slices) {
  require<ShapeError>(x.rows() == slices.tokens, "{} is not of all {} tokens", x, slices.tokens);
  Tensor slice = context.empty({slices.rows(), x.dim(-1)}, x.dtype());
  const FlightSubject subject(slices.ranks.group(), "activations");
  slices.ranks.group().wait(slices.ranks.group().reduce_scatter(padded(context, x, slices), slice), *context.stream);
  return slice;
}

/// Columns [from, from + count) of each row of x become those of y from `to` on.
void copy_columns(const Context& context, const Tensor& x, int64_t from, const Tensor& y, int64_t to, int64_t count) {
  context.run(CopyHeads{
      .from = {x, from, x.dim(-1)}, .to = {y, to, y.dim(-1)}, .tokens = y.rows(), .num_heads = 1, .head_dim = count});
}

/// Which columns of the ranks' keys and values make the one head that this rank reads.
struct SharedHead {
  int64_t q = 0;      // columns of this rank's queries
  int64_t slice = 0;  // columns of the keys that one rank has, and of its values
  int64_t first = 0;  // the first rank that has some of the head
  int64_t count = 0;  // how many have

  SharedHead(const PackedHeads& heads, int64_t width, const TensorRanks& ranks)
      : q(heads.num_heads * heads.head_dim), slice((width - q) / 2), count(heads.head_dim / slice) {
    require<ShapeError>(heads.num_kv_heads == 1 && heads.value_dim() == heads.head_dim && q + 2 * slice == width &&
                            slice * count == heads.head_dim && ranks.size() % count == 0,
                        "{} columns of {} query heads of {}: the rest are no keys and values of a part of one head",
                        width, heads.num_heads, heads.head_dim);
    first = ranks.rank() / count * count;
  }
};

}  // namespace

Var copy_to_ranks(Tape& tape, const Var& x, const TensorRanks& ranks) {
  if (!ranks.several()) return x;
  Var y = tape.record(x.value, {x}, [x = Var{{}, x.slot}, ranks](Gradients& gradients, Tensor dy) {
    dy = detail::writable(gradients.context(), std::move(dy));
    all_reduce(gradients.context(), dy, ranks);
    gradients.give(x, std::move(dy));
  });
  y.again = x.again;
  return y;
}

Var sum_over_ranks(Tape& tape, const Var& x, const TensorRanks& ranks, const ParameterView& bias) {
  if (!ranks.several()) return x;
  all_reduce(tape.context(), x.value, ranks);
  return tape.record(x.value, {x, bias}, [x = Var{{}, x.slot}, bias](Gradients& gradients, Tensor dy) {
    if (GradSink db = gradients.sink(bias)) gradients.context().run(SumRows{dy, db.into, db.accumulate});
    gradients.give(x, std::move(dy));
  });
}

Var gather_tokens(Tape& tape, const Var& x, const TokenSlices& slices) {
  if (!slices.several()) return x;
  Var y = tape.record(gathered(tape.context(), x.value, slices), {x},
                      [x = Var{{}, x.slot}, slices](Gradients& gradients, const Tensor& dy) {
                        gradients.give(x, scattered(gradients.context(), dy, slices));
                      });
  y.again = [x = Saved(x), slices](const Context& context) -> Later {
    return [x = x.prepared(context), slices](const Context& on) { return gathered(on, x(on), slices); };
  };
  return y;
}

Var scatter_sum(Tape& tape, const Var& x, const TokenSlices& slices, const ParameterView& bias) {
  if (!slices.several()) return x;
  return tape.record(scattered(tape.context(), x.value, slices), {x, bias},
                     [x = Var{{}, x.slot}, slices, bias](Gradients& gradients, const Tensor& d_slice) {
                       Tensor dy = gathered(gradients.context(), d_slice, slices);
                       if (GradSink db = gradients.sink(bias))
                         gradients.context().run(SumRows{dy, db.into, db.accumulate});
                       gradients.give(x, std::move(dy));
                     });
}

Var gather_for_all(Tape& tape, const Var& x, const TokenSlices& slices) {
  if (!slices.several()) return x;
  return tape.record(gathered(tape.context(), x.value, slices), {x},
                     [x = Var{{}, x.slot}, slices](Gradients& gradients, const Tensor& dy) {
                       const Context& context = gradients.context();
                       Tensor dx = context.empty({slices.rows(), dy.dim(-1)}, dy.dtype());
                       const auto [begin, end] = intersect(slices.local_rows(), {0, slices.tokens});
                       const int64_t own = std::max<int64_t>(end - begin, 0);
                       if (own > 0) context.copy(dy.slice(begin, end), dx.slice(0, own));
                       if (own < slices.rows()) context.zero(dx.slice(own, slices.rows()));
                       gradients.give(x, std::move(dx));
                     });
}

Var enter_ranks(Tape& tape, const Var& x, const TensorRanks& ranks, const TokenSlices& slices) {
  return slices.several() ? gather_tokens(tape, x, slices) : copy_to_ranks(tape, x, ranks);
}

Var leave_ranks(Tape& tape, const Var& x, const TensorRanks& ranks, const TokenSlices& slices,
                const ParameterView& bias) {
  return slices.several() ? scatter_sum(tape, x, slices, bias) : sum_over_ranks(tape, x, ranks, bias);
}

Var gather_shared_heads(Tape& tape, const Var& x, const PackedHeads& heads, const TensorRanks& ranks) {
  const Context& context = tape.context();
  const SharedHead head(heads, x.value.dim(-1), ranks);
  const int64_t tokens = x.value.rows(), q = head.q, slice = head.slice, dim = heads.head_dim;
  const DType dtype = x.value.dtype();
  const Shape all_shape{ranks.size(), tokens, 2 * slice};
  const Tensor mine = context.empty({tokens, 2 * slice}, dtype), all = context.empty(all_shape, dtype);
  copy_columns(context, x.value, q, mine, 0, 2 * slice);
  ranks.group().wait(ranks.group().all_gather(mine, all), *context.stream);
  Tensor y = context.empty({tokens, q + 2 * dim}, dtype);
  copy_columns(context, x.value, 0, y, 0, q);
  const auto part_of = [tokens, slice](const Tensor& parts, int64_t rank) {
    return parts.reshape({parts.numel() / (2 * slice), 2 * slice}).slice(rank * tokens, (rank + 1) * tokens);
  };
  for (int64_t i = 0; i < head.count; ++i) {
    copy_columns(context, part_of(all, head.first + i), 0, y, q + i * slice, slice);
    copy_columns(context, part_of(all, head.first + i), slice, y, q + dim + i * slice, slice);
  }
  return tape.record(y, {x},
                     [x = Var{{}, x.slot}, x_shape = x.value.shape(), head, tokens, dim, all_shape, part_of, ranks](
                         Gradients& gradients, const Tensor& dy) {
                       const Context& context = gradients.context();
                       const int64_t q = head.q, slice = head.slice;
                       const Tensor dx = context.empty(x_shape, dy.dtype());
                       copy_columns(context, dy, 0, dx, 0, q);
                       const Tensor parts = context.zeros(all_shape, dy.dtype());
                       for (int64_t i = 0; i < head.count; ++i) {
                         copy_columns(context, dy, q + i * slice, part_of(parts, head.first + i), 0, slice);
                         copy_columns(context, dy, q + dim + i * slice, part_of(parts, head.first + i), slice, slice);
                       }
                       const Tensor mine = context.empty({tokens, 2 * slice}, dy.dtype());
                       ranks.group().wait(ranks.group().reduce_scatter(parts, mine), *context.stream);
                       copy_columns(context, mine, 0, dx.reshape({tokens, q + 2 * slice}), q, 2 * slice);
                       gradients.give(x, dx);
                     });
}

Tensor gather_columns(const Context& context, const Tensor& part, int64_t extent, const TensorRanks& ranks) {
  if (!ranks.several()) return part;
  const int64_t rows = part.rows(), widest = ranks.part(extent, 0).size();
  Tensor mine = part;
  if (part.dim(-1) != widest) {
    mine = context.zeros({rows, widest}, part.dtype(), Category::workspace);
    context.run(CopyHeads{.from = {part, 0, part.dim(-1)},
                          .to = {mine, 0, widest},
                          .tokens = rows,
                          .num_heads = 1,
                          .head_dim = part.dim(-1)});
  }
  const Tensor all = context.empty({ranks.size() * rows, widest}, part.dtype(), Category::workspace);
  ranks.group().wait(ranks.group().all_gather(mine, all), *context.stream);
  Tensor whole = context.empty({rows, extent}, part.dtype());
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const auto [begin, end] = ranks.part(extent, rank);
    copy_columns(context, all.slice(rank * rows, (rank + 1) * rows), 0, whole, begin, end - begin);
  }
  return whole;
}

}  // namespace nought
