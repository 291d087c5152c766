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
  final_norm_ = Norm(*head_, names.final_norm, config_.norm, config_.hidden_size, config_.norm_eps);
  if (config_.tie_word_embeddings) {
    head_weight_ = tokens_;
    head_->borrow(*embedding_);
  } else {
    head_weight_ = head_->add(names.head + ".weight", {config_.vocab_size, config_.hidden_size}, init);
  }
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
  const bool gated = config_.mlp == MlpKind::gated;

  block.attention_norm = Norm(unit, names.attention_norm, config_.norm, hidden, config_.norm_eps);
  block.attention =
      SelfAttention(unit, {.hidden = hidden,
                           .heads = heads(),
                           .scale = config_.attention_scale,
                           .window = 0,
                           .qkv = linear(hidden, config_.fused_qkv ? std::vector{q + 2 * kv} : std::vector{q, kv, kv},
                                         names.qkv, config_.qkv_bias, std),
                           .out = linear(q, {hidden}, {names.attention_out}, config_.output_bias, residual_std)});
  block.mlp_norm = Norm(unit, names.mlp_norm, config_.norm, hidden, config_.norm_eps);
  block.mlp =
      Mlp(unit, {.gated = gated,
                 .activation = config_.activation,
                 .up = linear(hidden, std::vector<int64_t>(gated ? 2 : 1, ffn), names.up, config_.mlp_bias, std),
                 .down = linear(ffn, {hidden}, {names.down}, config_.mlp_bias, residual_std)});
  return block;
}

const RopeTables* Decoder::rope_tables(const Context& context, int64_t positions, DType dtype) {
  if (config_.positions != PositionKind::rope) return nullptr;
  if (!rope_ || rope_->cos.dim(0) < positions)
    rope_ = make_rope_tables(context, round_up(positions, 128), config_.rotary_dim, config_.rope_theta, dtype);
  return &*rope_;
}

Var Decoder::run_block(Tape& tape, const Block& block, const Var& x, const Sequences& sequences, KvCache* cache) const {
  const RopeTables* tables = rope_ ? &*rope_ : nullptr;
  return tape.run_unit(
      *block.unit, x,
      // By value: a recomputed block runs again after this call returned.
      [&block, sequences, tables, cache](Tape& inner, const Var& in) {
        const Var attended =
            add(inner, in, block.attention(inner, block.attention_norm(inner, in), sequences, tables, cache));
        return add(inner, attended, block.mlp(inner, block.mlp_norm(inner, attended)));
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
    return positions_.defined() ? add_embedding(inner, y, sequences.positions, positions_) : y;
  });
  rope_tables(context, start + length, x.value.dtype());
  for (size_t i = 0; i < blocks_.size(); ++i)
    x = run_block(tape, blocks_[i], x, sequences, cache ? &cache->layers[i] : nullptr);
  return x;
}

Var Decoder::loss(Tape& tape, const Tensor& ids, const Tensor& targets, double gradient_scale) {
  const Var x = hidden(tape, ids, nullptr);
  return tape.run_unit(*head_, x, [&](Tape& inner, const Var& in) {
    return cross_entropy_head(inner, final_norm_(inner, in), head_weight_, targets, gradient_scale);
  });
}

Tensor Decoder::logits(const Context& context, const Tensor& ids) {
  Tape tape(context, /*recording=*/false);
  const Var x = hidden(tape, ids, nullptr);
  return tape
      .run_unit(*head_, x,
                [&](Tape& inner, const Var& in) {
                  return linear(inner, final_norm_(inner, in), head_weight_, {}, WeightLayout::out_in);
                })
      .value;
}

Tensor Decoder::next_logits(const Context& context, const Tensor& ids, DecoderCache& cache) {
  Tape tape(context, /*recording=*/false);
  const Tensor states = hidden(tape, ids, &cache).value;
  const Tensor last = states.slice(states.dim(0) - 1, states.dim(0));
  return tape
      .run_unit(*head_, Tape::constant(last),
                [&](Tape& inner, const Var& in) {
                  return linear(inner, final_norm_(inner, in), head_weight_, {}, WeightLayout::out_in);
                })
      .value;
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
