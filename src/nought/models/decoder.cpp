#include "nought/models/decoder.h"

#include <algorithm>
#include <numeric>

#include "nought/models/names.h"

namespace nought {

namespace {

/// Each document of each row; ShapeError unless the batch has the shapes that Batch says.
std::vector<AttentionSpan> spans_of(const Batch& batch) {
  const Tensor& ids = batch.input_ids;
  require<ShapeError>(ids.defined() && ids.rank() == 2 && ids.dtype() == DType::i32,
                      "token ids must be i32 [batch, length], got {}", ids);
  const int64_t rows = ids.dim(0), length = ids.dim(1);
  const auto& documents = batch.document_starts;
  require<ShapeError>(documents.empty() || documents.size() == static_cast<size_t>(rows),
                      "a batch of {} rows has the documents of {}", rows, documents.size());
  std::vector<AttentionSpan> spans;
  const auto add = [&](int64_t row, int64_t begin, int64_t end) {
    require<ShapeError>(begin < end && end <= length, "row {} has a document in [{}, {}) of {} tokens", row, begin, end,
                        length);
    spans.push_back({row * length + begin, end - begin, row * length + begin, end - begin});
  };
  for (int64_t row = 0; row < rows; ++row) {
    if (documents.empty()) {
      add(row, 0, length);
      continue;
    }
    const std::vector<int32_t>& starts = documents[static_cast<size_t>(row)];
    require<ShapeError>(!starts.empty() && starts.front() == 0, "row {}: the first document must begin at 0", row);
    for (size_t i = 0; i < starts.size(); ++i) add(row, starts[i], i + 1 < starts.size() ? starts[i + 1] : length);
  }
  return spans;
}

}  // namespace

Decoder::Decoder(const ModelConfig& config, const RecomputeOptions& recompute, const Fp8Options& fp8)
    : config_(config),
      recompute_(recompute),
      saved_inputs_(recompute),
      fp8_(fp8.scaling == Fp8Scaling::none ? nullptr : std::make_shared<Fp8Recipe>(fp8)) {
  require(!config_.local_rope || (config_.rope.switch_length() == 0 && config_.local_rope->switch_length() == 0),
          "layers with rotary positions of their own cannot have ones that depend on the length of the sequence");
  const WeightNames names = WeightNames::of(config_);
  const Init init = Init::normal(config_.initializer_range);
  embedding_ = &add_unit("embedding");
  tokens_ = embedding_->add(names.token_embedding + ".weight", {config_.vocab_size, config_.hidden_size}, init,
                            ParameterRole::embedding);
  if (config_.positions == PositionKind::learned)
    positions_ = embedding_->add(names.position_embedding + ".weight", {config_.max_positions, config_.hidden_size},
                                 init, ParameterRole::embedding);
  for (int64_t i = 0; i < config_.num_layers; ++i) blocks_.push_back(make_block(i));
  head_ = &add_unit("head");
  final_norm_ = Norm(*head_, names.final_norm, norm_options());
  if (config_.tie_word_embeddings) {
    head_weight_ = tokens_;
    head_->borrow(*embedding_);
  } else {
    head_weight_ =
        head_->add(names.head + ".weight", {config_.vocab_size, config_.hidden_size}, init, ParameterRole::head);
  }
}

Tape::Section Decoder::section_of(const Block& block, const Sequences& sequences, const KvCache* cache) const {
  // By value: a recomputed block runs again after the forward pass returned.
  return {block.unit, [&block, sequences, cache, log = router_log_, tables = block.local ? local_rope_ : rope_,
                       parallel = config_.parallel_residual](Tape& inner, const Var& in) {
            const auto part = [&](const char* name, const auto& layer, const Var& x, const auto&... more) {
              return inner.run_part(*block.unit, name, [&] { return layer(inner, x, more...); });
            };
            const RopeTables* rotation = tables ? &*tables : nullptr;
            const Var branch = part("attention", block.attention, part("attention_norm", block.attention_norm, in),
                                    sequences, rotation, cache);
            const Var attended = add(inner, in, part("attention_post_norm", block.attention_post_norm, branch));
            const Var mlp_in = part("mlp_norm", block.mlp_norm, parallel ? in : attended);
            const Var mlp = block.experts ? part("experts", *block.experts, mlp_in, log, block.router)
                                          : part("mlp", block.mlp, mlp_in);
            return add(inner, attended, part("mlp_post_norm", block.mlp_post_norm, mlp));
          }};
}

Var Decoder::run_blocks(Tape& tape, Var x, const Sequences& sequences, const DecoderCache* cache) {
  const size_t count = blocks_.size();
  const auto section = [&](size_t i) { return section_of(blocks_[i], sequences, cache ? &cache->layers[i] : nullptr); };
  if (recompute_.mode != Recompute::full || !tape.recording()) {
    for (size_t i = 0; i < count; ++i) {
      const auto [unit, body] = section(i);
      x = tape.run_unit(*unit, x, body, recompute_.mode);
    }
    return x;
  }
  size_t first = 0;  // the walk back ends before it: nothing is kept of what is below
  for (; first < count && !x.requires_grad() && !blocks_[first].unit->trained(); ++first) {
    const auto [unit, body] = section(first);
    x = tape.run_unit(*unit, x, body);
  }
  const auto stride = static_cast<size_t>(recompute_.units_per_checkpoint(config_.num_layers));
  saved_inputs_.begin(tape.context(), static_cast<int64_t>(ceil_div(count - first, stride)), x.value);
  for (size_t begin = first; begin < count; begin += stride) {
    std::vector<Tape::Section> sections;
    for (size_t i = begin; i < std::min(begin + stride, count); ++i) sections.push_back(section(i));
    x = tape.run_checkpoint(std::move(sections), x, saved_inputs_.keep(tape.context(), x.value));
  }
  return x;
}

void Decoder::set_positions(const Context& context, const Sequences& sequences) const {
  const int64_t limit = config_.rope.switch_length(), long_begin = rope_ && limit > 0 ? rope_->long_begin : 0;
  std::vector<int32_t> positions(static_cast<size_t>(sequences.positions.numel()));
  for (const AttentionSpan& span : sequences.spans) {
    const int64_t first = span.k_length - span.q_length + (span.k_length > limit ? long_begin : 0);
    const auto begin = positions.begin() + span.q_begin;
    std::iota(begin, begin + span.q_length, static_cast<int32_t>(first));
  }
  context.upload<int32_t>(positions, sequences.positions);
}

Var Decoder::hidden(Tape& tape, const Tensor& ids, std::vector<AttentionSpan> spans, const DecoderCache* cache) {
  int64_t longest = 0;
  for (const AttentionSpan& span : spans) longest = std::max(longest, span.k_length);
  require(config_.positions != PositionKind::learned || longest <= config_.max_positions,
          "a sequence of {} tokens exceeds the {} positions that the model has learned", longest,
          config_.max_positions);
  const Context& context = tape.context();
  const Sequences sequences{std::move(spans), context.empty({ids.numel()}, DType::i32)};
  set_positions(context, sequences);

  Var x = tape.run_unit(*embedding_, Var{}, [&](Tape& inner, const Var&) {
    Var y = embedding(inner, ids, tokens_);
    if (config_.embedding_scale != 1) y = scale(inner, y, config_.embedding_scale);
    return positions_.defined() ? add_embedding(inner, y, sequences.positions, positions_) : y;
  });
  const auto prepare = [&](std::optional<RopeTables>& tables, const RopeOptions& options) {
    const int64_t rows = !tables ? 0 : tables->long_begin > 0 ? tables->long_begin : tables->cos.dim(0);
    if (rows < longest) tables = make_rope_tables(context, round_up(longest, 128), options, x.value.dtype());
  };
  if (config_.positions == PositionKind::rope) prepare(rope_, config_.rope), set_positions(context, sequences);
  if (config_.local_rope) prepare(local_rope_, *config_.local_rope);
  return run_blocks(tape, std::move(x), sequences, cache);
}

Var Decoder::loss(Tape& tape, const Batch& batch, double gradient_scale) {
  router_log_ = num_routers_ > 0 ? std::make_shared<RouterLog>(num_routers_) : nullptr;
  const Batch placed = on_device(tape.context(), batch);
  const Var x = hidden(tape, placed.input_ids, spans_of(batch), nullptr);
  const Var loss = tape.run_unit(*head_, x, [&](Tape& inner, const Var& in) {
    const Var normed = inner.run_part(*head_, "norm", [&] { return final_norm_(inner, in); });
    return inner.run_part(*head_, "loss", [&] {
      return loss_head(inner, normed, head_weight_, objective_->rows(placed), gradient_scale, config_.logit_softcap);
    });
  });
  if (router_log_) router_loads_.add(*router_log_);
  if (!config_.experts || !config_.experts->auxiliary_loss || !router_log_) return loss;
  return add_auxiliary_loss(tape, loss, router_log_, objective_->weight(batch), config_.experts->auxiliary_coefficient,
                            gradient_scale, mesh().group(Group::balance));
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

Tensor Decoder::logits(const Context& context, const Batch& batch) {
  Tape tape(context, /*recording=*/false);
  return head_logits(tape, hidden(tape, context.on_device(batch.input_ids), spans_of(batch), nullptr));
}

Tensor Decoder::next_logits(const Context& context, std::span<const NextTokens> next, DecoderCache& cache) {
  Tape tape(context, /*recording=*/false);
  const int64_t limit = config_.rope.switch_length();
  std::vector<int32_t> fed, last;  // all tokens, and where the last ones are among them
  std::vector<AttentionSpan> spans;
  for (const NextTokens& each : next) {
    std::vector<int32_t>& ids = cache.ids.at(static_cast<size_t>(each.sequence));
    const auto held = static_cast<int64_t>(ids.size()), length = held + static_cast<int64_t>(each.ids.size());
    require(!each.ids.empty() && length <= cache.capacity,
            "the KV cache holds {} tokens of a sequence, {} and {} more are needed", cache.capacity, held,
            each.ids.size());
    ids.insert(ids.end(), each.ids.begin(), each.ids.end());
    // Beyond the limit all keys rotate otherwise: they are computed again.
    const int64_t from = held <= limit && length > limit ? 0 : held, begin = static_cast<int64_t>(fed.size());
    fed.insert(fed.end(), ids.begin() + from, ids.end());
    last.push_back(static_cast<int32_t>(fed.size()) - 1);
    spans.push_back({begin, length - from, each.sequence * cache.capacity, length});
  }
  const Tensor tokens = context.upload<int32_t>({static_cast<int64_t>(fed.size())}, fed);
  const Tensor states = hidden(tape, tokens, std::move(spans), &cache).value;
  const Tensor ends = context.empty({static_cast<int64_t>(last.size()), config_.hidden_size}, states.dtype());
  context.run(GatherRows{.x = states, .index = context.upload<int32_t>({ends.dim(0)}, last), .out = ends});
  return head_logits(tape, Tape::constant(ends));
}

int64_t Decoder::keep_first(DecoderCache& cache, int64_t sequence, int64_t count) const {
  std::vector<int32_t>& ids = cache.ids.at(static_cast<size_t>(sequence));
  const int64_t limit = config_.rope.switch_length(), held = static_cast<int64_t>(ids.size());
  const int64_t kept = limit > 0 && held > limit && count <= limit ? 0 : std::min(count, held);
  ids.resize(static_cast<size_t>(kept));
  return kept;
}

Tensor Decoder::step_values(const Context& context) {
  return fp8_ ? fp8_->take_maxima(context, mesh().group(Group::fp8_maxima)) : Tensor{};
}

void Decoder::finish_step(std::span<const double> values) {
  if (fp8_) fp8_->finish_step(values);
}

std::vector<double> Decoder::state() const { return fp8_ ? fp8_->state() : std::vector<double>{}; }

bool Decoder::restore(std::span<const double> state) { return fp8_ ? fp8_->restore(state) : state.empty(); }

DecoderCache Decoder::make_cache(const Context& context, int64_t capacity, DType dtype, int64_t sequences) const {
  DecoderCache cache{{}, capacity, std::vector<std::vector<int32_t>>(static_cast<size_t>(sequences))};
  const PackedHeads packed = heads();
  const auto rows = [&](int64_t head_dim) {
    return context.empty({sequences * capacity, packed.num_kv_heads * head_dim}, dtype, Category::kv_cache);
  };
  for (int64_t i = 0; i < config_.num_layers; ++i)
    cache.layers.push_back({rows(packed.head_dim), rows(packed.value_dim())});
  return cache;
}

}  // namespace nought
