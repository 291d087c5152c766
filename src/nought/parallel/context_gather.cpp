#include "nought/parallel/context_gather.h"

#include <algorithm>
#include <array>
#include <utility>

#include "nought/comm/flight_recorder.h"
#include "nought/parallel/context_keys.h"

namespace nought {

namespace {

/// What both passes know of a call.
struct Gathering {
  PackedHeads heads;
  AttentionOptions options;
  ContextTokens tokens;
  std::vector<AttentionSpan> spans;  // this rank's queries against all keys

  Gathering(const PackedHeads& packed, const AttentionOptions& how, const ContextTokens& of)
      : heads(packed), options(how), tokens(of), spans(ContextSpans(of, how).on_all(of.ranks.rank)) {}

  Communicator& group() const { return *tokens.ranks.group; }
  /// The key/value heads that are gathered at a time.
  int64_t heads_at_once() const {
    const int64_t wanted = tokens.ranks.gathered_heads;
    return wanted > 0 ? std::min(wanted, heads.num_kv_heads) : heads.num_kv_heads;
  }
  int64_t num_parts() const { return ceil_div(heads.num_kv_heads, heads_at_once()); }
  PackedKeys part(int64_t index) const {
    const int64_t begin = index * heads_at_once();
    return {heads, {begin, std::min(begin + heads_at_once(), heads.num_kv_heads)}};
  }
  bool in_one_part() const { return num_parts() == 1; }

  /// Each rank sends as many rows, those of no token last.
  int64_t all_rows() const { return tokens.ranks.ranks * tokens.most_tokens(); }
};

/// The keys and values of all tokens, heads by heads, while the next ones come.
class GatheredKeys {
 public:
  GatheredKeys(const Context& context, const Gathering& gathering, const Tensor& qkv)
      : context_(context), gathering_(gathering), qkv_(qkv) {
    const PackedKeys widest = gathering.part(0);
    for (size_t i = 0; i < (gathering.in_one_part() ? 1 : 2); ++i) {
      mine_[i] = room(gathering.tokens.most_tokens(), widest);
      by_rank_[i] = room(gathering.all_rows(), widest);
    }
    in_order_ = room(gathering.tokens.rows * gathering.tokens.length, widest);
    begin(0);
  }

  /// The keys and values of a part, [rows * length, k | v]; begins to gather the next part's.
  Tensor take(int64_t part) {
    gathering_.group().wait(coming_, *context_.stream);
    const PackedKeys keys = gathering_.part(part);
    const auto place = static_cast<size_t>(part % 2);
    const Tensor from = rows_of(by_rank_[place], keys);
    Tensor to = rows_of(in_order_, keys);
    gathering_.tokens.for_each_stretch(/*padded=*/true, [&](Interval by_rank, Interval in_order) {
      context_.copy(from.slice(by_rank.begin, by_rank.end), to.slice(in_order.begin, in_order.end));
    });
    if (part + 1 < gathering_.num_parts()) begin(part + 1);
    if (part + 2 >= gathering_.num_parts()) mine_[place] = by_rank_[place] = {};  // no other part comes here
    return to;
  }

 private:
  Tensor room(int64_t rows, const PackedKeys& keys) const {
    return context_.empty({rows, keys.width()}, qkv_.dtype(), Category::communication);
  }
  /// The last part may have fewer heads: its rows lie closer together in the same room.
  static Tensor rows_of(const Tensor& room, const PackedKeys& keys) {
    return room.flat(0, room.rows() * keys.width()).reshape({room.rows(), keys.width()});
  }
  void begin(int64_t part) {
    const auto place = static_cast<size_t>(part % 2);
    const PackedKeys keys = gathering_.part(part);
    const Tensor mine = rows_of(mine_[place], keys);
    keys.pack(context_, qkv_, mine);
    if (mine.rows() > qkv_.rows()) context_.zero(mine.slice(qkv_.rows(), mine.rows()));
    coming_ = gathering_.group().all_gather(mine, rows_of(by_rank_[place], keys));
  }

  const Context& context_;
  const Gathering& gathering_;
  Tensor qkv_;
  std::array<Tensor, 2> mine_, by_rank_;
  Tensor in_order_;
  Event coming_;
};

/// The columns of a part's query heads in what attention gives; the tensor itself if that is all of them.
Tensor columns_of(const Context& context, const PackedKeys& keys, const Tensor& all) {
  if (keys.out_width() == all.dim(-1)) return all;
  Tensor part = context.empty({all.rows(), keys.out_width()}, all.dtype(), Category::workspace);
  const int64_t dim = keys.whole.value_dim(), first = keys.query_heads().begin;
  context.run(CopyHeads{.from = {all, first * dim, all.dim(-1)},
                        .to = {part, 0, keys.out_width()},
                        .tokens = all.rows(),
                        .num_heads = keys.query_heads().size(),
                        .head_dim = dim});
  return part;
}

/// The query heads of a part of the sinks, or of their gradients.
Tensor sinks_of(const PackedKeys& keys, const Tensor& sinks) {
  return sinks ? sinks.flat(keys.query_heads().begin, keys.query_heads().end) : sinks;
}

struct Attended {
  Tensor out;
  std::vector<Tensor> lse;  // of each part
};

Attended attend_parts(const Context& context, const Gathering& gathering, const Tensor& qkv, const Tensor& sinks) {
  Attended all{context.empty({qkv.rows(), gathering.heads.out_width()}, qkv.dtype()), {}};
  GatheredKeys gathered(context, gathering, qkv);
  for (int64_t i = 0; i < gathering.num_parts(); ++i) {
    const PackedKeys keys = gathering.part(i);
    const Tensor here = gathered.take(i);
    const int64_t num_heads = keys.query_heads().size();
    const Tensor out = gathering.in_one_part()
                           ? all.out
                           : context.empty({qkv.rows(), keys.out_width()}, qkv.dtype(), Category::workspace);
    all.lse.push_back(context.empty({num_heads, qkv.rows()}, statistics_dtype(qkv.dtype())));
    context.run(Attention{.shape = keys.shape(gathering.options, gathering.spans),
                          .q = keys.queries(qkv),
                          .k = keys.in(here).k,
                          .v = keys.in(here).v,
                          .out = out,
                          .lse = all.lse.back(),
                          .sinks = sinks_of(keys, sinks)});
    if (gathering.in_one_part()) continue;
    const int64_t dim = keys.whole.value_dim(), width = all.out.dim(-1);
    context.run(CopyHeads{.from = {out, 0, keys.out_width()},
                          .to = {all.out, keys.query_heads().begin * dim, width},
                          .tokens = qkv.rows(),
                          .num_heads = num_heads,
                          .head_dim = dim});
  }
  return all;
}

/// What the backward pass has of the forward pass and of what came after it.
struct GatheredPass {
  Tensor qkv;
  const Attended& attended;
  Tensor d_out;
  ParameterView sinks;
  GradSink d_sinks;
};

/// Adds the ranks' gradients of a part's keys, and this rank's of its queries, to d.
void attend_part_backward(const Context& context, const Gathering& gathering, int64_t part, const GatheredPass& known,
                          const Tensor& here, const Tensor& d) {
  const PackedKeys keys = gathering.part(part);
  const Tensor d_all = context.empty({here.rows(), keys.width()}, d.dtype(), Category::workspace);
  context.zero(d_all);
  context.run(AttentionBackward{.shape = keys.shape(gathering.options, gathering.spans),
                                .q = keys.queries(known.qkv),
                                .k = keys.in(here).k,
                                .v = keys.in(here).v,
                                .out = columns_of(context, keys, known.attended.out),
                                .lse = known.attended.lse[static_cast<size_t>(part)],
                                .d_out = columns_of(context, keys, known.d_out),
                                .dq = keys.queries(d),
                                .dk = keys.in(d_all).k,
                                .dv = keys.in(d_all).v,
                                .sinks = known.sinks.defined() ? sinks_of(keys, known.sinks.value()) : Tensor{},
                                .d_sinks = sinks_of(keys, known.d_sinks.into),
                                .accumulate_sinks = known.d_sinks.accumulate,
                                .accumulate_q = true,
                                .accumulate_kv = true});
  const Tensor by_rank = context.empty({gathering.all_rows(), keys.width()}, d.dtype(), Category::communication);
  const Tensor mine = context.empty({gathering.tokens.most_tokens(), keys.width()}, d.dtype(), Category::communication);
  if (gathering.all_rows() > here.rows()) context.zero(by_rank);
  gathering.tokens.for_each_stretch(/*padded=*/true, [&](Interval to, Interval from) {
    context.copy(d_all.slice(from.begin, from.end), by_rank.slice(to.begin, to.end));
  });
  gathering.group().wait(gathering.group().reduce_scatter(by_rank, mine), *context.stream);
  keys.add_to(context, mine, d);
}

}  // namespace

Var gathered_attention(Tape& tape, const Var& qkv, const PackedHeads& heads, const AttentionOptions& options,
                       const ContextTokens& tokens) {
  const Gathering gathering(heads, options, tokens);
  const FlightSubject subject(gathering.group(), "keys and values");
  Attended attended =
      attend_parts(tape.context(), gathering, qkv.value, options.sinks.defined() ? options.sinks.value() : Tensor{});
  const Tensor out = attended.out;
  return tape.record(out, {qkv, options.sinks},
                     [qkv, gathering, attended = std::move(attended), sinks = options.sinks](Gradients& gradients,
                                                                                             const Tensor& d_out) {
                       const Context& context = gradients.context();
                       const FlightSubject subject(gathering.group(), "keys and values");
                       const GatheredPass known{qkv.value, attended, d_out, sinks, gradients.sink(sinks)};
                       const Tensor d = context.zeros(qkv.value.shape(), statistics_dtype(qkv.value.dtype()));
                       GatheredKeys gathered(context, gathering, qkv.value);
                       for (int64_t i = 0; i < gathering.num_parts(); ++i)
                         attend_part_backward(context, gathering, i, known, gathered.take(i), d);
                       gradients.give(qkv, as_dtype(context, d, qkv.value.dtype()));
                     });
}

}  // namespace nought
