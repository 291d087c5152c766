#include "nought/models/decoder.h"

#include <algorithm>

#include "nought/models/names.h"

namespace nought {

Decoder::Decoder(const ModelConfig& config, bool recompute) : config_(config), recompute_(recompute) {
  const WeightNames names = WeightNames::of(config_);
  const Init init = Init::normal(config_.initializer_range);
  embedding_ = &add_unit("embedding");
  tokens_ = embedding_->add(names.token_embedding + ".weight", {config_.vocab_size, config_.hidden_size}, init);
  if (config_.positions == PositionKind::learned)
    positions_ =
        embedding_->add(names.position_embedding + ".weight", {config_.max_positions, config_.hidden_size}, init);
  for (int64_t i = 0; i < config_.num_layers; ++i) blocks_.push_back(make_block(i));
  head_ = &add_unit("head");
  final_norm_ = Norm(*head_, names.final_norm, norm_options());
  if (config_.tie_word_embeddings) {
    head_weight_ = tokens_;
    head_->borrow(*embedding_);
  } else {
    head_weight_ = head_->add(names.head + ".weight", {config_.vocab_size, config_.hidden_size}, init);
  }
}

PackedHeads Decoder::heads() const {
  return {.num_heads = config_.num_heads,
          .num_kv_heads = config_.num_kv_heads,
          .head_dim = config_.head_dim,
          .interleaved = config_.qkv_packing == QkvPacking::interleaved};
}

Norm::Options Decoder::norm_options() const {
  return {.kind = config_.norm,
          .features = config_.hidden_size,
          .eps = config_.norm_eps,
          .weight_offset = config_.norm_weight_offset};
}

Decoder::Block Decoder::make_block(int64_t index) {
  Block block;
  block.unit = &add_unit(fmt::format("block.{}", index));
  Unit& unit = *block.unit;
  const WeightNames::Layer names = WeightNames::of(config_).layer(index);
  const int64_t hidden = config_.hidden_size, ffn = config_.intermediate_size;
  const int64_t q = config_.num_heads * config_.head_dim, kv = config_.num_kv_heads * config_.head_dim;
  const double std = config_.initializer_range, residual_std = std * config_.residual_initializer_scale;
  const auto linear = [&](int64_t in, std::vector<int64_t> out, std::vector<std::string> weight, bool bias,
                          double deviation) {
    return Linear::Options{.in = in,
                           .out = std::move(out),
                           .names = std::move(weight),
                           .bias = bias,
                           .layout = config_.weight_layout,
                           .std = deviation};
  };
  const bool pre = config_.norm_placement != NormPlacement::post, post = config_.norm_placement != NormPlacement::pre;
  const auto norm = [&](bool used, const std::string& name) {
    return used ? Norm(unit, name, norm_options()) : Norm();
  };
  const bool separate = config_.qkv_packing == QkvPacking::separate;
  const int64_t window = config_.windows[static_cast<size_t>(index)];
  block.local = window > 0 && config_.local_rope;

  block.attention_norm = norm(pre, names.attention_norm);
  block.attention =
      SelfAttention(unit, {.heads = heads(),
                           .scale = config_.attention_scale,
                           .window = window,
                           .softcap = config_.attention_softcap,
                           .qkv = linear(hidden, separate ? std::vector{q, kv, kv} : std::vector{q + 2 * kv}, names.qkv,
                                         config_.qkv_bias, std),
                           .out = linear(q, {hidden}, {names.attention_out}, config_.output_bias, residual_std),
                           .qk_norm = config_.qk_norm,
                           .q_norm = names.q_norm,
                           .k_norm = names.k_norm,
                           .norm_eps = config_.norm_eps,
                           .norm_weight_offset = config_.norm_weight_offset});
  block.attention_post_norm = norm(post, names.attention_post_norm);
  block.mlp_norm = norm(pre, names.mlp_norm);
  const bool gated = config_.mlp == MlpKind::gated;
  const std::vector<int64_t> up = !gated                  ? std::vector{ffn}
                                  : config_.fused_gate_up ? std::vector{2 * ffn}
                                                          : std::vector{ffn, ffn};
  block.mlp = Mlp(unit, {.gated = gated,
                         .activation = config_.activation,
                         .up = linear(hidden, up, names.up, config_.mlp_bias, std),
                         .down = linear(ffn, {hidden}, {names.down}, config_.mlp_bias, residual_std)});
  block.mlp_post_norm = norm(post, names.mlp_post_norm);
  return block;
}

void Decoder::prepare_positions(Positions& positions, const RopeOptions& options, const Context& context,
                                int64_t length, DType dtype) const {
  const int64_t limit = options.switch_length();
  const bool beyond = limit > 0 && length > limit;
  if (positions.tables && positions.tables->cos.dim(0) >= length && positions.beyond_switch == beyond) return;
  positions.tables = make_rope_tables(context, round_up(length, 128), length, options, dtype);
  positions.beyond_switch = beyond;
}

Var Decoder::run_block(Tape& tape, const Block& block, const Var& x, const Sequences& sequences, KvCache* cache) const {
  return tape.run_unit(
      *block.unit, x,
      // By value: a recomputed block runs again after this call returned.
      [&block, sequences, cache, tables = (block.local ? local_rope_ : rope_).tables,
       parallel = config_.parallel_residual](Tape& inner, const Var& in) {
        const Var branch =
            block.attention(inner, block.attention_norm(inner, in), sequences, tables ? &*tables : nullptr, cache);
        const Var attended = add(inner, in, block.attention_post_norm(inner, branch));
        const Var mlp = block.mlp(inner, block.mlp_norm(inner, parallel ? in : attended));
        return add(inner, attended, block.mlp_post_norm(inner, mlp));
      },
      recompute_);
}

Var Decoder::hidden(Tape& tape, const Tensor& ids, DecoderCache* cache) {
  require<ShapeError>(ids.rank() == 2 && ids.dtype() == DType::i32, "token ids must be i32 [batch, length], got {}",
                      ids.str());
  const int64_t batch = ids.dim(0), length = ids.dim(1), start = cache ? cache->length() : 0;
  require(config_.positions != PositionKind::learned || start + length <= config_.max_positions,
          "a sequence of {} tokens exceeds the {} positions that the model has learned", start + length,
          config_.max_positions);
  const Context& context = tape.context();
  Sequences sequences{batch, length, context.empty({batch * length}, DType::i32)};
  int32_t* position = sequences.positions.data<int32_t>();
  for (int64_t i = 0; i < batch * length; ++i) position[i] = static_cast<int32_t>(start + i % length);

  Var x = tape.run_unit(*embedding_, Var{}, [&](Tape& inner, const Var&) {
    Var y = embedding(inner, ids, tokens_);
    if (config_.embedding_scale != 1) y = scale(inner, y, config_.embedding_scale);
    return positions_.defined() ? add_embedding(inner, y, sequences.positions, positions_) : y;
  });
  const DType dtype = x.value.dtype();
  if (config_.positions == PositionKind::rope) prepare_positions(rope_, config_.rope, context, start + length, dtype);
  if (config_.local_rope) prepare_positions(local_rope_, *config_.local_rope, context, start + length, dtype);
  for (size_t i = 0; i < blocks_.size(); ++i)
    x = run_block(tape, blocks_[i], x, sequences, cache ? &cache->layers[i] : nullptr);
  return x;
}

Var Decoder::loss(Tape& tape, const Tensor& ids, const Tensor& targets, double gradient_scale) {
  const Var x = hidden(tape, ids, nullptr);
  return tape.run_unit(*head_, x, [&](Tape& inner, const Var& in) {
    return cross_entropy_head(inner, final_norm_(inner, in), head_weight_, targets, gradient_scale,
                              config_.logit_softcap);
  });
}

Tensor Decoder::head_logits(Tape& tape, const Var& hidden) {
  const Tensor logits =
      tape.run_unit(*head_, hidden,
                    [&](Tape& inner, const Var& in) {
                      return linear(inner, final_norm_(inner, in), head_weight_, {}, WeightLayout::out_in);
                    })
          .value;
  if (config_.logit_softcap > 0) tape.context().run(Softcap{.x = logits, .cap = config_.logit_softcap});
  return logits;
}

Tensor Decoder::logits(const Context& context, const Tensor& ids) {
  Tape tape(context, /*recording=*/false);
  return head_logits(tape, hidden(tape, ids, nullptr));
}

Tensor Decoder::next_logits(const Context& context, const Tensor& ids, DecoderCache& cache) {
  Tape tape(context, /*recording=*/false);
  const int64_t limit = config_.rope.switch_length(), held = cache.length();
  cache.ids.insert(cache.ids.end(), ids.data<int32_t>(), ids.data<int32_t>() + ids.numel());
  Tensor fed = ids;
  if (held > 0 && held <= limit && held + ids.numel() > limit) {
    // All keys rotate otherwise from here on: they are computed again.
    for (KvCache& layer : cache.layers) layer.length = 0;
    fed = Tensor::of<int32_t>(*context.memory, {1, static_cast<int64_t>(cache.ids.size())}, cache.ids);
  }
  const Tensor states = hidden(tape, fed, &cache).value;
  return head_logits(tape, Tape::constant(states.slice(states.dim(0) - 1, states.dim(0))));
}

DecoderCache Decoder::make_cache(const Context& context, int64_t capacity, DType dtype) const {
  DecoderCache cache;
  const Shape shape{capacity, config_.num_kv_heads * config_.head_dim};
  for (int64_t i = 0; i < config_.num_layers; ++i)
    cache.layers.push_back(
        {context.empty(shape, dtype, Category::kv_cache), context.empty(shape, dtype, Category::kv_cache)});
  return cache;
}

}  // namespace nought
