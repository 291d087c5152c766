#include "nought/nn/attention.h"

namespace nought {

SelfAttention::SelfAttention(Unit& unit, const Options& options)
    : heads_(options.heads), scale_(options.scale), window_(options.window), softcap_(options.softcap) {
  if (options.latent) {
    latent_.emplace(unit, *options.latent);
  } else {
    qkv_ = Linear(unit, options.qkv);
  }
  out_ = Linear(unit, options.out);
  if (!options.sinks.empty())
    sinks_ = unit.add(options.sinks, {heads_.num_heads}, Init::normal(options.sink_std), /*decay=*/false);
  require<ShapeError>(!heads_.interleaved || heads_.num_heads == heads_.num_kv_heads,
                      "interleaved projections need as many key/value heads as query heads, got {} and {}",
                      heads_.num_kv_heads, heads_.num_heads);
  if (options.qk_norm == QkNorm::none) return;
  const bool per_head = options.qk_norm == QkNorm::per_head;
  const auto weight = [&](const std::string& name, int64_t num_heads) {
    const int64_t features = per_head ? heads_.head_dim : num_heads * heads_.head_dim;
    return unit.add(name + ".weight", {features}, options.norm_weight_offset == 1 ? Init::zeros() : Init::ones(),
                    /*decay=*/false);
  };
  norms_ = HeadNorms{.q_weight = weight(options.q_norm, heads_.num_heads),
                     .k_weight = weight(options.k_norm, heads_.num_kv_heads),
                     .eps = options.norm_eps,
                     .weight_offset = options.norm_weight_offset,
                     .per_head = per_head};
}

Var SelfAttention::operator()(Tape& tape, const Var& x, const Sequences& sequences, const RopeTables* tables,
                              KvCache* cache) const {
  Var qkv = latent_ ? (*latent_)(tape, x, heads_) : qkv_(tape, x);
  if (norms_) qkv = norm_heads(tape, qkv, heads_, *norms_);
  if (tables) qkv = rope(tape, qkv, heads_, *tables, sequences.positions);
  if (cache) {
    require(!tape.recording() && sequences.batch == 1, "a KV cache serves one sequence, without recording");
    return out_(tape, Tape::constant(attend_cached(tape, qkv.value, sequences.length, *cache)));
  }
  const AttentionOptions options{.batch = sequences.batch,
                                 .length = sequences.length,
                                 .scale = scale_,
                                 .causal = true,
                                 .window = window_,
                                 .softcap = softcap_,
                                 .sinks = sinks_};
  return out_(tape, attention(tape, qkv, heads_, options));
}

Tensor SelfAttention::attend_cached(Tape& tape, const Tensor& qkv, int64_t length, KvCache& cache) const {
  const Context& context = tape.context();
  require(cache.length + length <= cache.k.dim(0), "the KV cache holds {} tokens, {} are needed", cache.k.dim(0),
          cache.length + length);
  const auto heads_of = [&](const Tensor& held, int64_t first_token, int64_t head_dim) {
    const int64_t width = heads_.num_kv_heads * head_dim;
    return Heads{held, first_token * width, width};
  };
  const auto append = [&](const Heads& from, const Tensor& held, int64_t head_dim) {
    context.run(CopyHeads{.from = from,
                          .to = heads_of(held, cache.length, head_dim),
                          .tokens = length,
                          .num_heads = heads_.num_kv_heads,
                          .head_dim = head_dim});
  };
  append(heads_.k(qkv), cache.k, heads_.head_dim);
  append(heads_.v(qkv), cache.v, heads_.value_dim());
  cache.length += length;
  const AttentionShape shape{.batch = 1,
                             .q_length = length,
                             .k_length = cache.length,
                             .num_heads = heads_.num_heads,
                             .num_kv_heads = heads_.num_kv_heads,
                             .head_dim = heads_.head_dim,
                             .scale = scale_,
                             .causal = true,
                             .window = window_,
                             .softcap = softcap_,
                             .v_head_dim = heads_.v_head_dim};
  Tensor out = context.empty({length, heads_.out_width()}, qkv.dtype());
  Tensor lse = context.empty({1, heads_.num_heads, length}, qkv.dtype() == DType::f64 ? DType::f64 : DType::f32);
  context.run(Attention{.shape = shape,
                        .q = heads_.q(qkv),
                        .k = heads_of(cache.k, 0, heads_.head_dim),
                        .v = heads_of(cache.v, 0, heads_.value_dim()),
                        .out = out,
                        .lse = lse,
                        .sinks = sinks_.defined() ? sinks_.value() : Tensor{}});
  return out;
}

}  // namespace nought
