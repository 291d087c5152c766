#include "nought/autograd/attention.h"

#include <array>

#include "nought/autograd/detail.h"
#include "nought/comm/flight_recorder.h"

namespace nought {

using detail::with_features;
using detail::writable;

namespace {

void rotate(const Context& context, const Tensor& packed, const PackedHeads& heads, const RopeTables& tables,
            const Tensor& positions, bool inverse) {
  const auto run = [&](Heads x, int64_t count) {
    x.head_stride = x.stride(heads.head_dim);
    x.offset += heads.rope_offset;
    context.run(Rope{.x = x,
                     .cos = tables.cos,
                     .sin = tables.sin,
                     .positions = positions,
                     .num_heads = count,
                     .head_dim = heads.head_dim - heads.rope_offset,
                     .rotary_dim = tables.rotary_dim,
                     .interleaved = tables.interleaved,
                     .inverse = inverse});
  };
  if (heads.interleaved) {
    run(heads.q(packed), heads.num_heads);
    run(heads.k(packed), heads.num_kv_heads);
  } else {  // q and k heads lie side by side: one call rotates both
    run(heads.q(packed), heads.num_heads + heads.num_kv_heads);
  }
}

}  // namespace

Var rope(Tape& tape, const Var& qkv, const PackedHeads& heads, const RopeTables& tables, const Tensor& positions) {
  rotate(tape.context(), qkv.value, heads, tables, positions, false);
  return tape.record(qkv.value, {qkv},
                     [qkv = Var{{}, qkv.slot}, heads, tables, positions](Gradients& gradients, Tensor d) {
                       d = writable(gradients.context(), std::move(d));
                       rotate(gradients.context(), d, heads, tables, positions, true);
                       gradients.give(qkv, std::move(d));
                     });
}

Var scale_queries(Tape& tape, const Var& qkv, const PackedHeads& heads, const RopeTables& factors,
                  const Tensor& positions) {
  const auto multiply = [heads, factors, positions](const Context& context, const Tensor& packed) {
    Heads q = heads.q(packed);
    q.head_stride = q.stride(heads.head_dim);
    context.run(Rope{.x = q,
                     .cos = factors.cos,
                     .sin = factors.sin,
                     .positions = positions,
                     .num_heads = heads.num_heads,
                     .head_dim = heads.head_dim,
                     .rotary_dim = heads.head_dim});
  };
  multiply(tape.context(), qkv.value);
  return tape.record(qkv.value, {qkv}, [qkv = Var{{}, qkv.slot}, multiply](Gradients& gradients, Tensor d) {
    d = writable(gradients.context(), std::move(d));
    multiply(gradients.context(), d);
    gradients.give(qkv, std::move(d));
  });
}

namespace {

/// The queries or the keys of a packed projection: where they lie, the weight that scales them, how they form rows.
struct NormedPart {
  Heads (PackedHeads::*of)(const Tensor&) const;
  int64_t num_heads;
  ParameterView weight;
  Shape rows;                // as a tensor of their own
  Tensor x = {}, rstd = {};  // what backward needs

  /// Without a weight: zeros, for an offset of 1.
  Tensor scales(const Context& context) const {
    return weight.defined() ? weight.value() : context.zeros({rows[1]}, x.dtype(), Category::workspace);
  }
  double offset(const HeadNorms& norms) const { return weight.defined() ? norms.weight_offset : 1; }
};

/// Copies between the packed projection and a part's own tensor, where its heads lie side by side.
void move_part(const Context& context, const PackedHeads& heads, const NormedPart& part, const Tensor& packed,
               const Tensor& own, bool into_packed) {
  const Heads inside = (heads.*part.of)(packed), outside{own, 0, part.num_heads * heads.head_dim};
  context.run(CopyHeads{.from = into_packed ? outside : inside,
                        .to = into_packed ? inside : outside,
                        .tokens = packed.rows(),
                        .num_heads = part.num_heads,
                        .head_dim = heads.head_dim});
}

Tensor gather_part(const Context& context, const PackedHeads& heads, const NormedPart& part, const Tensor& packed) {
  Tensor own = context.empty(part.rows, packed.dtype());
  move_part(context, heads, part, packed, own, /*into_packed=*/false);
  return own;
}

using NormedParts = std::array<NormedPart, 2>;

/// dot(part, out) writes what this rank knows of a sum over each row of a part. Returns the sums over all ranks, of one
/// part after the other: [2 * rows]. Undefined if no ranks share rows.
template <class Dot>
Tensor sums_of_rows(const Context& context, const NormedParts& parts, DType dtype, Communicator* ranks,
                    const Dot& dot) {
  if (!ranks) return {};
  const int64_t rows = parts[0].rows[0];  // as many as the other part's: they are whole tokens
  const Tensor sums = context.empty({2 * rows}, statistics_dtype(dtype), Category::workspace);
  for (size_t i = 0; i < parts.size(); ++i)
    dot(i, sums.flat(static_cast<int64_t>(i) * rows, static_cast<int64_t>(i + 1) * rows));
  const FlightSubject subject(*ranks, "norms of heads");
  ranks->wait(ranks->all_reduce(sums), *context.stream);
  return sums;
}

/// The elements of the vector of which a part's row has some; 0 if it has all.
int64_t width_of(const NormedPart& part, const Communicator* ranks) { return ranks ? part.rows[1] * ranks->size() : 0; }

Tensor of_part(const Tensor& sums, size_t part) {
  if (!sums) return {};
  const int64_t rows = sums.numel() / 2, begin = static_cast<int64_t>(part) * rows;
  return sums.flat(begin, begin + rows);
}

void norm_parts_backward(Gradients& gradients, const PackedHeads& heads, const NormedParts& parts,
                         const HeadNorms& norms, const Tensor& d) {
  const Context& context = gradients.context();
  std::array<Tensor, 2> gathered;
  const Tensor products = sums_of_rows(context, parts, d.dtype(), norms.ranks, [&](size_t i, const Tensor& out) {
    gathered[i] = gather_part(context, heads, parts[i], d);
    context.run(DotRows{.a = gathered[i],
                        .b = parts[i].x,
                        .out = out,
                        .factors = parts[i].weight.value(),
                        .factor_offset = norms.weight_offset});
  });
  for (size_t i = 0; i < parts.size(); ++i) {
    const NormedPart& part = parts[i];
    const Tensor dy = gathered[i] ? std::move(gathered[i]) : gather_part(context, heads, part, d);
    const Tensor dx = context.empty(part.rows, d.dtype());
    const Tensor scales = part.scales(context);
    const GradSink dw = detail::or_scratch(gradients, gradients.sink(part.weight), scales);
    context.run(RmsNormBackward{.x = part.x,
                                .weight = scales,
                                .rstd = part.rstd,
                                .dy = dy,
                                .dx = dx,
                                .d_weight = dw.into,
                                .weight_offset = part.offset(norms),
                                .accumulate_weight = dw.accumulate,
                                .products = of_part(products, i),
                                .width = width_of(part, norms.ranks)});
    move_part(context, heads, part, d, dx, /*into_packed=*/true);
  }
}

}  // namespace

Var norm_heads(Tape& tape, const Var& qkv, const PackedHeads& heads, const HeadNorms& norms) {
  const Context& context = tape.context();
  const int64_t tokens = qkv.value.rows();
  const auto rows = [&](int64_t count) {
    return norms.per_head ? Shape{tokens * count, heads.head_dim} : Shape{tokens, count * heads.head_dim};
  };
  NormedParts parts{NormedPart{&PackedHeads::q, heads.num_heads, norms.q_weight, rows(heads.num_heads)},
                    NormedPart{&PackedHeads::k, heads.num_kv_heads, norms.k_weight, rows(heads.num_kv_heads)}};
  require(!norms.per_head || !norms.ranks, "heads that are normalised one by one are whole: no ranks share them");
  const Tensor squares = sums_of_rows(context, parts, qkv.value.dtype(), norms.ranks, [&](size_t i, const Tensor& out) {
    parts[i].x = gather_part(context, heads, parts[i], qkv.value);
    context.run(DotRows{.a = parts[i].x, .b = parts[i].x, .out = out});
  });
  for (size_t i = 0; i < parts.size(); ++i) {
    NormedPart& part = parts[i];
    if (!part.x) part.x = gather_part(context, heads, part, qkv.value);
    part.rstd = context.empty({part.rows[0]}, statistics_dtype(qkv.value.dtype()));
    Tensor y = context.empty(part.rows, qkv.value.dtype());
    context.run(RmsNorm{.x = part.x,
                        .weight = part.scales(context),
                        .y = y,
                        .rstd = part.rstd,
                        .eps = norms.eps,
                        .weight_offset = part.offset(norms),
                        .squares = of_part(squares, i),
                        .width = width_of(part, norms.ranks)});
    move_part(context, heads, part, qkv.value, y, /*into_packed=*/true);
  }
  return tape.record(qkv.value, {qkv, norms.q_weight, norms.k_weight},
                     [qkv = Var{{}, qkv.slot}, heads, parts, norms](Gradients& gradients, Tensor d) {
                       d = writable(gradients.context(), std::move(d));
                       norm_parts_backward(gradients, heads, parts, norms, d);
                       gradients.give(qkv, std::move(d));
                     });
}

namespace {

/// One piece of a packed latent projection: copied there, and its gradient back.
struct LatentPiece {
  Heads source, packed;
  int64_t head_dim;
  bool shared = false;  // by all heads
};

/// q, each head's own part of k, the shared part of k, and v, in that order. Heads with undefined bases say where.
std::array<LatentPiece, 4> latent_pieces(const PackedHeads& heads) {
  const int64_t own = heads.rope_offset, shared = heads.head_dim - own, v = heads.value_dim();
  const int64_t kv_stride = own + v, kv_width = heads.num_heads * kv_stride;
  const auto beyond = [&](Heads x, int64_t elements) {
    x.head_stride = x.stride(heads.head_dim);
    x.offset += elements;
    return x;
  };
  return {LatentPiece{{{}, 0, heads.num_heads * heads.head_dim}, heads.q({}), heads.head_dim},
          LatentPiece{{{}, 0, kv_width, kv_stride}, beyond(heads.k({}), 0), own},
          LatentPiece{{{}, 0, shared}, beyond(heads.k({}), own), shared, /*shared=*/true},
          LatentPiece{{{}, own, kv_width, kv_stride}, heads.v({}), v}};
}

Heads on(Heads heads, const Tensor& base) {
  heads.base = base;
  return heads;
}

}  // namespace

Var pack_latent(Tape& tape, const Var& q, const Var& kv, const Var& shared_key, const PackedHeads& heads) {
  const Context& context = tape.context();
  require<ShapeError>(heads.num_heads == heads.num_kv_heads && !heads.interleaved,
                      "latent attention has as many keys as queries, side by side");
  const int64_t tokens = q.value.rows();
  Tensor packed = context.empty({tokens, heads.width()}, q.value.dtype());
  const auto pieces = latent_pieces(heads);
  const std::array<const Var*, 4> sources{&q, &kv, &shared_key, &kv};
  for (size_t i = 0; i < pieces.size(); ++i)
    context.run(CopyHeads{.from = on(pieces[i].source, sources[i]->value),
                          .to = on(pieces[i].packed, packed),
                          .tokens = tokens,
                          .num_heads = heads.num_heads,
                          .head_dim = pieces[i].head_dim,
                          .broadcast = pieces[i].shared});
  return tape.record(packed, {q, kv, shared_key},
                     [q, kv, shared_key, heads, tokens](Gradients& gradients, const Tensor& d) {
                       const Context& context = gradients.context();
                       const auto pieces = latent_pieces(heads);
                       const auto give = [&](const Var& input, std::initializer_list<size_t> indices) {
                         Tensor own = context.empty(input.value.shape(), d.dtype());
                         for (const size_t i : indices) {
                           const Heads from = on(pieces[i].packed, d), to = on(pieces[i].source, own);
                           if (pieces[i].shared) {
                             context.run(SumHeads{from, to, tokens, heads.num_heads, pieces[i].head_dim});
                           } else {
                             context.run(CopyHeads{.from = from,
                                                   .to = to,
                                                   .tokens = tokens,
                                                   .num_heads = heads.num_heads,
                                                   .head_dim = pieces[i].head_dim});
                           }
                         }
                         gradients.give(input, std::move(own));
                       };
                       give(q, {0});
                       give(kv, {1, 3});
                       give(shared_key, {2});
                     });
}

namespace {

/// The sinks of the heads here, of all of them or of their gradients.
Tensor sinks_here(const Tensor& all, const PackedHeads& heads, int64_t first) {
  return all ? all.flat(first, first + heads.num_heads) : all;
}

/// Where their gradient goes. What belongs to other heads gets none.
GradSink sinks_here(const Context& context, GradSink all, const PackedHeads& heads, int64_t first) {
  if (all.into && !all.accumulate && all.into.numel() > heads.num_heads) {
    context.zero(all.into);
    all.accumulate = true;
  }
  return {sinks_here(all.into, heads, first), all.accumulate};
}

}  // namespace

Var attention(Tape& tape, const Var& qkv, const PackedHeads& heads, const AttentionOptions& options) {
  const Context& context = tape.context();
  const int64_t first = options.first_sink;
  const AttentionShape shape{.batch = options.batch,
                             .q_length = options.length,
                             .k_length = options.length,
                             .num_heads = heads.num_heads,
                             .num_kv_heads = heads.num_kv_heads,
                             .head_dim = heads.head_dim,
                             .scale = options.scale,
                             .causal = options.causal,
                             .window = options.window,
                             .softcap = options.softcap,
                             .v_head_dim = heads.v_head_dim,
                             .spans = options.spans};
  Tensor out = context.empty(with_features(qkv.value, heads.out_width()), qkv.value.dtype());
  Tensor lse = context.empty({heads.num_heads, shape.q_tokens()}, statistics_dtype(qkv.value.dtype()));
  context.run(Attention{.shape = shape,
                        .q = heads.q(qkv.value),
                        .k = heads.k(qkv.value),
                        .v = heads.v(qkv.value),
                        .out = out,
                        .lse = lse,
                        .sinks = options.sinks.defined() ? sinks_here(options.sinks.value(), heads, first) : Tensor{}});
  return tape.record(
      out, {qkv, options.sinks},
      [qkv, heads, shape, out, lse, sinks = options.sinks, first](Gradients& gradients, const Tensor& d_out) {
        Tensor d = gradients.context().empty(qkv.value.shape(), qkv.value.dtype());
        const GradSink d_sinks = sinks_here(gradients.context(), gradients.sink(sinks), heads, first);
        gradients.context().run(
            AttentionBackward{.shape = shape,
                              .q = heads.q(qkv.value),
                              .k = heads.k(qkv.value),
                              .v = heads.v(qkv.value),
                              .out = out,
                              .lse = lse,
                              .d_out = d_out,
                              .dq = heads.q(d),
                              .dk = heads.k(d),
                              .dv = heads.v(d),
                              .sinks = sinks.defined() ? sinks_here(sinks.value(), heads, first) : Tensor{},
                              .d_sinks = d_sinks.into,
                              .accumulate_sinks = d_sinks.accumulate});
        gradients.give(qkv, std::move(d));
      });
}

}  // namespace nought
