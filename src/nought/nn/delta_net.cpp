#include "nought/nn/delta_net.h"

#include "nought/autograd/delta_rule.h"
#include "nought/autograd/gates.h"
#include "nought/autograd/short_conv.h"

namespace nought {

DeltaNet::DeltaNet(Unit& unit, const Options& options)
    : grouped_(options.grouped),
      shape_(options.shape),
      taps_(options.taps),
      norm_eps_(options.norm_eps),
      qkv_(unit, options.qkv) {
  const TensorRanks& ranks = options.ranks;
  const DeltaShape& whole = options.shape;
  shape_.key_heads /= ranks.size(), shape_.value_heads /= ranks.size();
  if (!grouped_) z_ = Linear(unit, options.z);
  ba_ = Linear(unit, options.ba);
  conv_ = ranks.add(unit, options.conv + ".weight",
                    {{whole.width(), 1, taps_}, 0, {whole.keys(), whole.keys(), whole.values()}},
                    Init::normal(options.std), ParameterRole::filter);
  dt_bias_ = ranks.add(unit, options.dt_bias, {{whole.value_heads}, 0}, Init::ones(), ParameterRole::bias);
  a_log_ = ranks.add(unit, options.a_log, {{whole.value_heads}, 0}, Init::log_uniform(0.01, 16), ParameterRole::bias);
  norm_ = ranks.add_partial(unit, options.norm + ".weight", {whole.value_dim}, Init::ones(), ParameterRole::norm);
  out_ = Linear(unit, options.out);
}

Var DeltaNet::operator()(Tape& tape, const Var& x, const Sequences& sequences, const StateCache* cache) const {
  const std::vector<StateSpan> spans = state_spans(sequences, cache);
  Var mixed = qkv_(tape, x, sequences.slices), ba = ba_(tape, x, sequences.slices), z;
  if (grouped_) {
    const int64_t heads = shape_.key_heads, each = shape_.heads_of_key(), key = shape_.key_dim;
    const int64_t values = each * shape_.value_dim, group = 2 * (key + values);
    z = pick_columns(tape, mixed, {{2 * key + values, heads, values, group}});
    mixed =
        pick_columns(tape, mixed, {{0, heads, key, group}, {key, heads, key, group}, {2 * key, heads, values, group}});
    ba = pick_columns(tape, ba, {{0, heads, each, 2 * each}, {each, heads, each, 2 * each}});
  } else {
    z = z_(tape, x, sequences.slices);
  }
  const Var qkv = short_conv(tape, mixed, conv_, {}, /*gated=*/false, spans, cache ? cache->inputs : Tensor{});
  const Var read = delta_rule(tape, qkv, ba, a_log_, dt_bias_, shape_, spans, cache ? cache->memory : Tensor{});
  const Var normed = rms_norm(tape, with_rows_of(tape, read, shape_.value_dim), norm_, norm_eps_);
  const Var gated = gate(tape, normed, with_rows_of(tape, z, shape_.value_dim), GateKind::silu);
  return out_(tape, with_rows_of(tape, gated, shape_.values()), sequences.slices);
}

StateCache DeltaNet::make_cache(const Context& context, int64_t capacity, DType dtype, int64_t sequences) const {
  const StateCache cache{.inputs = context.empty({sequences, taps_ - 1, shape_.width()}, dtype, Category::kv_cache),
                         .memory = context.empty({sequences, shape_.value_heads, shape_.key_dim, shape_.value_dim},
                                                 statistics_dtype(dtype), Category::kv_cache),
                         .capacity = capacity};
  context.zero(cache.inputs);
  context.zero(cache.memory);
  return cache;
}

}  // namespace nought
