#include "nought/parallel/context_heads.h"

#include <algorithm>
#include <utility>

#include "nought/comm/flight_recorder.h"

namespace nought {

namespace {

int64_t local_tokens(const ContextTokens& tokens) { return tokens.tokens(tokens.ranks.rank); }

/// Rows for each rank in turn are sent there; the rows that came, by rank. counts: of what is sent, and received.
Tensor exchanged(const Context& context, const ContextTokens& tokens, const Tensor& x, RowCounts counts) {
  int64_t rows = 0;
  for (const int64_t count : counts.received) rows += count;
  Tensor out = context.empty({rows, x.dim(-1)}, x.dtype(), Category::communication);
  Communicator& group = *tokens.ranks.group;
  const FlightSubject subject(group, "heads of attention");
  group.wait(group.all_to_all_v(x, out, std::move(counts)), *context.stream);
  return out;
}

/// How many rows of this rank's tokens there are for each rank, and of each rank's tokens here.
RowCounts counts_to_heads(const ContextTokens& tokens) {
  RowCounts counts;
  for (int rank = 0; rank < tokens.ranks.ranks; ++rank) {
    counts.sent.push_back(local_tokens(tokens));
    counts.received.push_back(tokens.tokens(rank));
  }
  return counts;
}

/// All tokens in their order, [rows * length, width], of this rank's tokens for each rank in turn, [ranks * own tokens,
/// width].
Tensor collected(const Context& context, const ContextTokens& tokens, Tensor for_ranks) {
  const Tensor by_rank = exchanged(context, tokens, for_ranks, counts_to_heads(tokens));
  for_ranks = {};  // before there is a third tensor of all tokens
  Tensor all = context.empty(by_rank.shape(), by_rank.dtype());
  tokens.for_each_stretch(/*padded=*/false, [&](Interval from, Interval to) {
    context.copy(by_rank.slice(from.begin, from.end), all.slice(to.begin, to.end));
  });
  return all;
}

/// The way back.
Tensor distributed(const Context& context, const ContextTokens& tokens, const Tensor& all) {
  const Tensor by_rank = context.empty(all.shape(), all.dtype(), Category::communication);
  tokens.for_each_stretch(/*padded=*/false, [&](Interval to, Interval from) {
    context.copy(all.slice(from.begin, from.end), by_rank.slice(to.begin, to.end));
  });
  RowCounts counts = counts_to_heads(tokens);
  std::swap(counts.sent, counts.received);
  return exchanged(context, tokens, by_rank, std::move(counts));
}

/// The rows of one rank among those for each rank in turn.
Tensor rows_for(const ContextTokens& tokens, const Tensor& for_ranks, int64_t rank) {
  return for_ranks.slice(rank * local_tokens(tokens), (rank + 1) * local_tokens(tokens));
}

/// Which heads of a packed projection a rank has, and where they lie there and in a share of its own.
class Shares {
 public:
  Shares(const PackedHeads& heads, const ContextTokens& tokens)
      : whole_(heads), own_(heads_of_each(heads, tokens.ranks.ranks)), tokens_(tokens) {}

  int64_t width() const { return own_.width(); }
  /// Ranks that have the same key/value head.
  int64_t readers() const { return own_.num_kv_heads * tokens_.ranks.ranks / whole_.num_kv_heads; }

  /// [ranks * own tokens, width()] of qkv: [own tokens, heads.width()].
  Tensor packed(const Context& context, const Tensor& qkv) const {
    const Tensor all = context.empty({tokens_.ranks.ranks * qkv.rows(), width()}, qkv.dtype(), Category::communication);
    for (int64_t rank = 0; rank < tokens_.ranks.ranks; ++rank) {
      const Tensor share = rows_for(tokens_, all, rank);
      copy(context, queries(qkv, rank), own_.q(share), own_.num_heads, own_.head_dim);
      copy(context, keys(qkv, rank), own_.k(share), own_.num_kv_heads, own_.head_dim);
      copy(context, values(qkv, rank), own_.v(share), own_.num_kv_heads, own_.value_dim());
    }
    return all;
  }

  /// The gradient of qkv of those of its shares.
  Tensor added_up(const Context& context, const Tensor& all) const {
    Tensor d = context.empty({local_tokens(tokens_), whole_.width()}, all.dtype());
    for (int64_t rank = 0; rank < tokens_.ranks.ranks; ++rank) {
      const Tensor share = rows_for(tokens_, all, rank);
      copy(context, own_.q(share), queries(d, rank), own_.num_heads, own_.head_dim);
      if (readers() > 1) continue;
      copy(context, own_.k(share), keys(d, rank), own_.num_kv_heads, own_.head_dim);
      copy(context, own_.v(share), values(d, rank), own_.num_kv_heads, own_.value_dim());
    }
    if (readers() > 1) add_readers(context, all, d);
    return d;
  }

 private:
  /// Heads of a packed projection from `first` on.
  static Heads from(Heads heads, int64_t head_dim, int64_t first) {
    heads.head_stride = heads.stride(head_dim);
    heads.offset += first * heads.head_stride;
    return heads;
  }
  int64_t first_key(int64_t rank) const { return rank * whole_.num_kv_heads / tokens_.ranks.ranks; }
  Heads queries(const Tensor& x, int64_t rank) const {
    return from(whole_.q(x), whole_.head_dim, rank * own_.num_heads);
  }
  Heads keys(const Tensor& x, int64_t rank) const { return from(whole_.k(x), whole_.head_dim, first_key(rank)); }
  Heads values(const Tensor& x, int64_t rank) const { return from(whole_.v(x), whole_.value_dim(), first_key(rank)); }

  void copy(const Context& context, const Heads& of, const Heads& to, int64_t count, int64_t head_dim) const {
    context.run(
        CopyHeads{.from = of, .to = to, .tokens = local_tokens(tokens_), .num_heads = count, .head_dim = head_dim});
  }
  /// Each key/value head of d is the sum of its readers' ones, which are put side by side for it.
  void add_readers(const Context& context, const Tensor& all, const Tensor& d) const {
    const int64_t ranks = tokens_.ranks.ranks, dim = own_.head_dim, value_dim = own_.value_dim(),
                  pair = dim + value_dim;
    const Tensor side_by_side = context.empty({d.rows(), ranks * pair}, d.dtype(), Category::workspace);
    for (int64_t rank = 0; rank < ranks; ++rank)
      copy(context, own_.k(rows_for(tokens_, all, rank)), {side_by_side, rank * pair, ranks * pair}, 1, pair);
    const auto sum = [&](int64_t rank, int64_t offset, const Heads& to, int64_t head_dim) {
      context.run(SumHeads{.from = {side_by_side, rank * pair + offset, ranks * pair, pair},
                           .to = to,
                           .tokens = d.rows(),
                           .num_heads = readers(),
                           .head_dim = head_dim});
    };
    for (int64_t rank = 0; rank < ranks; rank += readers()) {
      sum(rank, 0, keys(d, rank), dim);
      sum(rank, dim, values(d, rank), value_dim);
    }
  }

  PackedHeads whole_, own_;
  ContextTokens tokens_;
};

/// Copies the columns of each rank between [own tokens, ranks * width] and rows for each rank in turn.
void copy_columns_of_ranks(const Context& context, const ContextTokens& tokens, const Tensor& side_by_side,
                           const Tensor& for_ranks, bool into_columns) {
  const int64_t width = for_ranks.dim(-1), all = side_by_side.dim(-1);
  for (int64_t rank = 0; rank < tokens.ranks.ranks; ++rank) {
    const Heads columns{side_by_side, rank * width, all}, rows{rows_for(tokens, for_ranks, rank), 0, width};
    context.run(CopyHeads{.from = into_columns ? rows : columns,
                          .to = into_columns ? columns : rows,
                          .tokens = local_tokens(tokens),
                          .num_heads = 1,
                          .head_dim = width});
  }
}

}  // namespace

PackedHeads heads_of_each(const PackedHeads& heads, int ranks) {
  const int64_t kv_heads = heads.num_kv_heads;
  require<ShapeError>(share_heads_evenly(heads.num_heads, kv_heads, ranks),
                      "{} ranks cannot share out {} query heads and {} key/value heads evenly", ranks, heads.num_heads,
                      kv_heads);
  return {.num_heads = heads.num_heads / ranks,
          .num_kv_heads = std::max<int64_t>(kv_heads / ranks, 1),
          .head_dim = heads.head_dim,
          .v_head_dim = heads.v_head_dim};
}

Var tokens_to_heads(Tape& tape, const Var& qkv, const PackedHeads& heads, const ContextTokens& tokens) {
  const Shares shares(heads, tokens);
  Tensor all = collected(tape.context(), tokens, shares.packed(tape.context(), qkv.value));
  return tape.record(all, {qkv}, [qkv = Var{{}, qkv.slot}, shares, tokens](Gradients& gradients, const Tensor& d) {
    const Context& context = gradients.context();
    gradients.give(qkv, shares.added_up(context, distributed(context, tokens, d)));
  });
}

Var heads_to_tokens(Tape& tape, const Var& x, const ContextTokens& tokens) {
  const Context& context = tape.context();
  const Tensor for_ranks = distributed(context, tokens, x.value);
  Tensor own = context.empty({local_tokens(tokens), tokens.ranks.ranks * x.value.dim(-1)}, x.value.dtype());
  copy_columns_of_ranks(context, tokens, own, for_ranks, /*into_columns=*/true);
  return tape.record(own, {x}, [x = Var{{}, x.slot}, tokens](Gradients& gradients, const Tensor& d) {
    const Context& context = gradients.context();
    const int64_t ranks = tokens.ranks.ranks;
    Tensor for_ranks = context.empty({ranks * d.rows(), d.dim(-1) / ranks}, d.dtype(), Category::communication);
    copy_columns_of_ranks(context, tokens, d, for_ranks, /*into_columns=*/false);
    gradients.give(x, collected(context, tokens, std::move(for_ranks)));
  });
}

Var exchange_heads_attention(Tape& tape, const Var& qkv, const PackedHeads& heads, const AttentionOptions& options,
                             const ContextTokens& tokens) {
  const PackedHeads own = heads_of_each(heads, tokens.ranks.ranks);
  AttentionOptions here = options;
  here.batch = tokens.rows, here.length = tokens.length;
  here.first_sink = tokens.ranks.rank * own.num_heads;
  return heads_to_tokens(tape, attention(tape, tokens_to_heads(tape, qkv, heads, tokens), own, here), tokens);
}

}  // namespace nought
