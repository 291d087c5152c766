#include "nought/models/decoder.h"

#include <algorithm>

#include "nought/models/names.h"

namespace nought {

Decoder::Decoder(const ModelConfig& config, const RecomputeOptions& recompute)
    : config_(config), recompute_(recompute), saved_inputs_(recompute) {
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

void Decoder::prepare_positions(Positions& positions, const RopeOptions& options, const Context& context,
                                int64_t length, DType dtype) const {
  const int64_t limit = options.switch_length();
  const bool beyond = limit > 0 && length > limit;
  if (positions.tables && positions.tables->cos.dim(0) >= length && positions.beyond_switch == beyond) return;
  positions.tables = make_rope_tables(context, round_up(length, 128), length, options, dtype);
  positions.beyond_switch = beyond;
}

Tape::Section Decoder::section_of(const Block& block, const Sequences& sequences, KvCache* cache) const {
  // By value: a recomputed block runs again after the forward pass returned.
  return {block.unit, [&block, sequences, cache, log = router_log_, tables = (block.local ? local_rope_ : rope_).tables,
                       parallel = config_.parallel_residual](Tape& inner, const Var& in) {
            const Var branch =
                block.attention(inner, block.attention_norm(inner, in), sequences, tables ? &*tables : nullptr, cache);
            const Var attended = add(inner, in, block.attention_post_norm(inner, branch));
            const Var mlp_in = block.mlp_norm(inner, parallel ? in : attended);
            const Var mlp =
                block.experts ? (*block.experts)(inner, mlp_in, log, block.router) : block.mlp(inner, mlp_in);
            return add(inner, attended, block.mlp_post_norm(inner, mlp));
          }};
}

Var Decoder::run_blocks(Tape& tape, Var x, const Sequences& sequences, DecoderCache* cache) {
  const size_t count = blocks_.size();
  const auto section = [&](size_t i) { return section_of(blocks_[i], sequences, cache ? &cache->layers[i] : nullptr); };
  if (recompute_.mode != Recompute::full || !tape.recording()) {
    for (size_t i = 0; i < count; ++i) {
      const auto [unit, body] = section(i);
      x = tape.run_unit(*unit, x, body, recompute_.mode);
    }
    return x;
  }
  const auto stride = static_cast<size_t>(recompute_.units_per_checkpoint(config_.num_layers));
  saved_inputs_.begin(tape.context(), static_cast<int64_t>(ceil_div(count, stride)), x.value);
  for (size_t begin = 0; begin < count; begin += stride) {
    std::vector<Tape::Section> sections;
    for (size_t i = begin; i < std::min(begin + stride, count); ++i) sections.push_back(section(i));
    x = tape.run_checkpoint(std::move(sections), x, saved_inputs_.keep(tape.context(), x.value));
  }
  return x;
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
  return run_blocks(tape, std::move(x), sequences, cache);
}

Var Decoder::loss(Tape& tape, const Tensor& ids, const Tensor& targets, double gradient_scale) {
  router_log_ = num_routers_ > 0 ? std::make_shared<RouterLog>(num_routers_) : nullptr;
  const Var x = hidden(tape, ids, nullptr);
  const Var loss = tape.run_unit(*head_, x, [&](Tape& inner, const Var& in) {
    return cross_entropy_head(inner, final_norm_(inner, in), head_weight_, targets, gradient_scale,
                              config_.logit_softcap);
  });
  if (!config_.experts || !config_.experts->auxiliary_loss || !router_log_) return loss;
  return add_auxiliary_loss(tape, loss, router_log_, targets, config_.experts->auxiliary_coefficient, gradient_scale,
                            embedding_->store());
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
  const PackedHeads packed = heads();
  const Shape k{capacity, packed.num_kv_heads * packed.head_dim}, v{capacity, packed.num_kv_heads * packed.value_dim()};
  for (int64_t i = 0; i < config_.num_layers; ++i)
    cache.layers.push_back({context.empty(k, dtype, Category::kv_cache), context.empty(v, dtype, Category::kv_cache)});
  return cache;
}

}  // namespace nought
