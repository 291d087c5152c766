#include "nought/nn/layers.h"

#include <cmath>
#include <cstring>
#include <numeric>

namespace nought {

Linear::Linear(Unit& unit, const Options& options) : layout_(options.layout) {
  require<ShapeError>(!options.names.empty() && options.names.size() == options.out.size(),
                      "a linear layer needs one output size per name");
  require<ShapeError>(options.names.size() == 1 || layout_ == WeightLayout::out_in,
                      "{}: weights of layout [in, out] do not join into one product", options.names[0]);
  const int64_t total = std::accumulate(options.out.begin(), options.out.end(), int64_t{0});
  const auto shape = [&](int64_t out) {
    return layout_ == WeightLayout::out_in ? Shape{out, options.in} : Shape{options.in, out};
  };
  std::vector<ParameterView> views;
  for (size_t i = 0; i < options.names.size(); ++i)
    views.push_back(unit.add(options.names[i] + ".weight", shape(options.out[i]), Init::normal(options.std)));
  weight_ = unit.join(views.front(), views.back(), shape(total));
  if (!options.bias) return;
  views.clear();
  for (size_t i = 0; i < options.names.size(); ++i)
    views.push_back(unit.add(options.names[i] + ".bias", {options.out[i]}, Init::zeros(), /*decay=*/false));
  bias_ = unit.join(views.front(), views.back(), {total});
}

Norm::Norm(Unit& unit, const std::string& name, NormKind kind, int64_t features, double eps)
    : kind_(kind), weight_(unit.add(name + ".weight", {features}, Init::ones(), /*decay=*/false)), eps_(eps) {
  if (kind_ == NormKind::layer) bias_ = unit.add(name + ".bias", {features}, Init::zeros(), /*decay=*/false);
}

Var Norm::operator()(Tape& tape, const Var& x) const {
  return kind_ == NormKind::rms ? rms_norm(tape, x, weight_, eps_) : layer_norm(tape, x, weight_, bias_, eps_);
}

SelfAttention::SelfAttention(Unit& unit, const Options& options)
    : heads_(options.heads),
      scale_(options.scale),
      window_(options.window),
      qkv_(unit, options.qkv),
      out_(unit, options.out) {}

Var SelfAttention::operator()(Tape& tape, const Var& x, const Sequences& sequences, const RopeTables* tables,
                              KvCache* cache) const {
  Var qkv = qkv_(tape, x);
  if (tables) qkv = rope(tape, qkv, heads_, *tables, sequences.positions);
  if (cache) {
    require(!tape.recording() && sequences.batch == 1, "a KV cache serves one sequence, without recording");
    return out_(tape, Tape::constant(attend_cached(tape, qkv.value, sequences.length, *cache)));
  }
  const AttentionOptions options{
      .batch = sequences.batch, .length = sequences.length, .scale = scale_, .causal = true, .window = window_};
  return out_(tape, attention(tape, qkv, heads_, options));
}

Tensor SelfAttention::attend_cached(Tape& tape, const Tensor& qkv, int64_t length, KvCache& cache) const {
  const Context& context = tape.context();
  const int64_t width = heads_.num_kv_heads * heads_.head_dim;
  require(cache.length + length <= cache.k.dim(0), "the KV cache holds {} tokens, {} are needed", cache.k.dim(0),
          cache.length + length);
  for (int64_t t = 0; t < length; ++t) {
    const int64_t row = t * heads_.width(), to = (cache.length + t) * width;
    const int64_t k = row + heads_.num_heads * heads_.head_dim, v = k + width;
    copy(qkv.flat(k, k + width), cache.k.flat(to, to + width));
    copy(qkv.flat(v, v + width), cache.v.flat(to, to + width));
  }
  cache.length += length;
  const AttentionShape shape{.batch = 1,
                             .q_length = length,
                             .k_length = cache.length,
                             .num_heads = heads_.num_heads,
                             .num_kv_heads = heads_.num_kv_heads,
                             .head_dim = heads_.head_dim,
                             .scale = scale_,
                             .causal = true,
                             .window = window_};
  Tensor out = context.empty({length, heads_.num_heads * heads_.head_dim}, qkv.dtype());
  Tensor lse = context.empty({1, heads_.num_heads, length}, qkv.dtype() == DType::f64 ? DType::f64 : DType::f32);
  context.run(Attention{.shape = shape,
                        .q = heads_.q(qkv),
                        .k = Heads{cache.k, 0, width},
                        .v = Heads{cache.v, 0, width},
                        .out = out,
                        .lse = lse});
  return out;
}

Mlp::Mlp(Unit& unit, const Options& options)
    : gated_(options.gated), activation_(options.activation), up_(unit, options.up), down_(unit, options.down) {}

Var Mlp::operator()(Tape& tape, const Var& x) const {
  const Var up = up_(tape, x);
  return down_(tape, gated_ ? gated_activate(tape, up, activation_) : activate(tape, up, activation_));
}

RopeTables make_rope_tables(const Context& context, int64_t positions, int64_t rotary_dim, double theta, DType dtype) {
  require<ShapeError>(rotary_dim > 0 && rotary_dim % 2 == 0, "RoPE rotates pairs: rotary_dim must be even, got {}",
                      rotary_dim);
  const DType table_dtype = dtype == DType::f64 ? DType::f64 : DType::f32;
  const int64_t half = rotary_dim / 2;
  RopeTables tables{.cos = context.empty({positions, half}, table_dtype, Category::workspace),
                    .sin = context.empty({positions, half}, table_dtype, Category::workspace),
                    .rotary_dim = rotary_dim};
  visit_float(table_dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T *cos = tables.cos.data<T>(), *sin = tables.sin.data<T>();
    for (int64_t i = 0; i < half; ++i) {
      const double frequency = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim));
      for (int64_t p = 0; p < positions; ++p) {
        cos[p * half + i] = T(std::cos(static_cast<double>(p) * frequency));
        sin[p * half + i] = T(std::sin(static_cast<double>(p) * frequency));
      }
    }
  });
  return tables;
}

}  // namespace nought
