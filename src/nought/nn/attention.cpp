#include "nought/nn/attention.h"

#include <algorithm>

#include "nought/autograd/gates.h"
#include "nought/parallel/conjugate.h"
#include "nought/parallel/context_attention.h"

namespace nought {

SelfAttention::SelfAttention(Unit& unit, const Options& options)
    : heads_(options.heads),
      ranks_(options.ranks),
      shared_heads_(options.shared_heads),
      output_gate_(options.output_gate),
      scale_(options.scale),
      causal_(options.causal),
      window_(options.window),
      chunk_(options.chunk),
      softcap_(options.softcap),
      clip_(options.clip) {
  if (options.latent) {
    latent_.emplace(unit, *options.latent);
  } else {
    qkv_ = Linear(unit, options.qkv);
  }
  out_ = Linear(unit, options.out);
  if (!options.sinks.empty())
    sinks_ = ranks_.add(unit, options.sinks, {{heads_.num_heads * ranks_.size()}, 0}, Init::normal(options.sink_std),
                        ParameterRole::sink);
  require<ShapeError>(!heads_.interleaved || heads_.num_heads == heads_.num_kv_heads,
                      "interleaved projections need as many key/value heads as query heads, got {} and {}",
                      heads_.num_kv_heads, heads_.num_heads);
  if (options.qk_norm == QkNorm::none) return;
  const bool per_head = options.qk_norm != QkNorm::whole;
  const Init init = options.norm_weight_offset == 1 ? Init::zeros() : Init::ones();
  const auto weight = [&](const std::string& name, int64_t features) {
    if (options.qk_norm == QkNorm::unweighted) return ParameterView();
    return per_head ? ranks_.add_partial(unit, name + ".weight", {features}, init, ParameterRole::norm)
                    : ranks_.add(unit, name + ".weight", {{features}, 0}, init, ParameterRole::norm);
  };
  norms_ = HeadNorms{.q_weight = weight(options.q_norm, options.q_norm_features),
                     .k_weight = weight(options.k_norm, options.k_norm_features),
                     .eps = options.norm_eps,
                     .weight_offset = options.norm_weight_offset,
                     .per_head = per_head,
                     .ranks = per_head || !ranks_.several() ? nullptr : &ranks_.group()};
}

PackedHeads SelfAttention::projected_heads() const {
  if (!shared_heads_) return heads_;
  // Slices of keys and of values are as wide; queries are whole heads, and so a multiple of them.
  const int64_t queries = heads_.num_heads * heads_.head_dim, slice = norms_->k_weight.shape()[0];
  return {.num_heads = queries / slice, .num_kv_heads = 1, .head_dim = slice};
}

std::vector<AttentionSpan> SelfAttention::spans_of(const Sequences& sequences) const {
  if (chunk_ == 0) return sequences.spans;
  std::vector<AttentionSpan> chunks;
  for (const AttentionSpan& span : sequences.spans) {
    const int64_t first = span.first_position();
    for (int64_t at = first; at < span.k_length;) {
      const int64_t begin = at / chunk_ * chunk_, end = std::min(begin + chunk_, span.k_length);
      chunks.push_back({span.q_begin + at - first, end - at, span.k_begin + begin, end - begin});
      at = end;
    }
  }
  return chunks;
}

Var SelfAttention::take_gate(Tape& tape, Var& qkv) const {
  if (!output_gate_) return {};
  const int64_t heads = heads_.num_heads, dim = heads_.head_dim, queries = heads * dim;
  const Var gates = pick_columns(tape, qkv, {{dim, heads, dim, 2 * dim}});
  qkv = pick_columns(tape, qkv, {{0, heads, dim, 2 * dim}, {2 * queries, 1, qkv.value.dim(-1) - 2 * queries, 0}});
  return gates;
}

Var SelfAttention::operator()(Tape& tape, const Var& x, const Sequences& sequences, const RopeTables* tables,
                              const KvCache* cache, const RopeTables* query_factors) const {
  Var qkv = latent_ ? (*latent_)(tape, x, heads_, sequences.slices) : qkv_(tape, x, sequences.slices);
  const Var gates = take_gate(tape, qkv);
  const auto gated = [&](const Var& y) { return output_gate_ ? gate(tape, y, gates, GateKind::sigmoid) : y; };
  // A norm of all heads is that of what every rank has projected: behind the gather, ranks have some heads twice.
  if (norms_ && !norms_->per_head) qkv = norm_heads(tape, qkv, projected_heads(), *norms_);
  if (shared_heads_) qkv = gather_shared_heads(tape, qkv, heads_, ranks_);
  if (norms_ && norms_->per_head) qkv = norm_heads(tape, qkv, heads_, *norms_);
  if (clip_ > 0) qkv = clamp(tape, qkv, clip_);
  if (tables) qkv = rope(tape, qkv, heads_, *tables, sequences.positions);
  if (query_factors) qkv = scale_queries(tape, qkv, heads_, *query_factors, sequences.positions);
  if (cache) {
    require(!tape.recording(), "a KV cache serves generation: it records nothing");
    require(causal_, "a KV cache has no later tokens");
    const Tensor attended = attend_cached(tape.context(), qkv.value, sequences, *cache);
    return out_(tape, gated(Tape::constant(attended)), sequences.slices);
  }
  const AttentionOptions options{.scale = scale_,
                                 .causal = causal_,
                                 .window = window_,
                                 .softcap = softcap_,
                                 .sinks = sinks_,
                                 .spans = spans_of(sequences)};
  const Var attended = sequences.context.several() ? context_attention(tape, qkv, heads_, options, sequences.context)
                                                   : attention(tape, qkv, heads_, options);
  return out_(tape, gated(attended), sequences.slices);
}

Tensor SelfAttention::attend_cached(const Context& context, const Tensor& qkv, const Sequences& sequences,
                                    const KvCache& cache) const {
  for (const AttentionSpan& span : sequences.spans) cache.append(context, heads_, qkv, span);
  const AttentionShape shape{.num_heads = heads_.num_heads,
                             .num_kv_heads = heads_.num_kv_heads,
                             .head_dim = heads_.head_dim,
                             .scale = scale_,
                             .causal = true,
                             .window = window_,
                             .softcap = softcap_,
                             .v_head_dim = heads_.v_head_dim,
                             .spans = spans_of(sequences)};
  Tensor out = context.empty({qkv.rows(), heads_.out_width()}, qkv.dtype());
  Tensor lse = context.empty({heads_.num_heads, qkv.rows()}, statistics_dtype(qkv.dtype()));
  context.run(Attention{.shape = shape,
                        .q = heads_.q(qkv),
                        .k = {cache.k, 0, heads_.num_kv_heads * heads_.head_dim},
                        .v = {cache.v, 0, heads_.num_kv_heads * heads_.value_dim()},
                        .out = out,
                        .lse = lse,
                        .sinks = sinks_.defined() ? sinks_.value() : Tensor{},
                        .k_scales = cache.k_scales,
                        .v_scales = cache.v_scales});
  return out;
}

}  // namespace nought
