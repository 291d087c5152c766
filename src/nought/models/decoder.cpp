#include "nought/models/decoder.h"

#include <algorithm>
#include <numeric>

#include "nought/models/context_choice.h"
#include "nought/models/decoder_work.h"
#include "nought/models/names.h"
#include "nought/models/stages.h"
#include "nought/models/tensor_cuts.h"
#include "nought/nn/context_batch.h"
#include "nought/parallel/conjugate.h"
#include "nought/parallel/context_rows.h"
#include "nought/parallel/vocabulary.h"
#include "nought/tensor/random.h"

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

Decoder::Decoder(const ModelConfig& config, const RecomputeOptions& recompute, const Fp8Options& fp8,
                 const ModelRanks& ranks)
    : config_(config),
      all_ranks_(ranks),
      ranks_(ranks.tensor),
      pipeline_(ranks.pipeline),
      stage_begins_(stage_begins(config, ranks.pipeline.cut.partition, ranks.pipeline.stages())),
      recompute_(recompute),
      saved_inputs_(recompute, ranks_.several() && !ranks.sequence_parallel ? &ranks_.group() : nullptr,
                    fmt::format("rank {}", ranks.rank)),
      fp8_(fp8.rounds() ? std::make_shared<Fp8Recipe>(fp8) : nullptr) {
  require_cuttable(config_, ranks_.size());
  require<ConfigError>(config_.adapter.empty() || recompute_.unit_tiles <= 1,
                       "training.memory_centric_tiling = {}: tiles of matrices with an adapter are not supported yet: "
                       "remove one of the two",
                       recompute_.unit_tiles);
  require(config_.sliding_windows.size() >= static_cast<size_t>(config_.num_layers), "{} layers with windows of {}",
          config_.num_layers, config_.sliding_windows.size());
  ContextRanks& parts = all_ranks_.context;
  const ContextChoice choice = choose_context_method(config_, parts.ranks, ranks_.size(),
                                                     ranks.chooses_method ? std::nullopt : std::optional(parts.method));
  parts.method = choice.method, parts.gathered_heads = choice.gathered_heads;
  if (parts.method == ContextMethod::heads) require_heads_for(config_, parts.ranks, ranks_.size());
  require(!config_.local_rope || (config_.rope.switch_length() == 0 && config_.local_rope->switch_length() == 0),
          "layers with rotary positions of their own cannot have ones that depend on the length of the sequence");
  require(!config_.query_scale || config_.rope.switch_length() == 0,
          "queries that are scaled by their position cannot have rotations that depend on the length of the sequence");
  const WeightNames names = WeightNames::of(config_);
  const Init init = Init::normal(config_.initializer_range);
  embedding_ =
      &add_staged_unit("embedding", config_.tie_word_embeddings ? std::optional(pipeline_.last_stage()) : std::nullopt);
  add_table();
  project_in_ = add_projection(*embedding_, names.project_in, config_.token_width(), config_.hidden_size);
  if (config_.positions == PositionKind::learned)
    positions_ = all_ranks_.slicing().add_partial(
        *embedding_, names.position_embedding + ".weight",
        {config_.max_positions + config_.position_offset, config_.hidden_size}, init, ParameterRole::embedding);
  if (config_.token_types > 0)
    token_types_ =
        all_ranks_.slicing().add_partial(*embedding_, names.token_types + ".weight",
                                         {config_.token_types, config_.hidden_size}, init, ParameterRole::embedding);
  if (config_.embedding_norm) embedding_norm_ = Norm(*embedding_, names.embedding_norm, block_options().norm());
  for (int64_t i = 0; i < config_.num_layers; ++i) blocks_.push_back(make_block(i));
  head_ = &add_staged_unit("head");
  if (config_.final_norm) final_norm_ = Norm(*head_, names.final_norm, block_options().norm());
  project_out_ = add_projection(*head_, names.project_out, config_.hidden_size, config_.token_width());
  add_head_weight();
  freeze_base();
}

void Decoder::freeze_base() {
  const ModelAdapter& adapter = config_.adapter;
  if (adapter.empty()) return;
  for (const auto& unit : units())
    unit->choose_trained([&](const Parameter& parameter) {
      return parameter.role == ParameterRole::adapter || adapter.saves(parameter.name);
    });
}

void Decoder::require_positions(int64_t length) const {
  require<ConfigError>(config_.positions != PositionKind::learned || length <= config_.max_positions,
                       "a sequence of {} tokens exceeds the {} positions that the model has learned", length,
                       config_.max_positions);
}

std::shared_ptr<Decoder::Work> Decoder::work_on(const Context& context, const Tensor& ids,
                                                std::span<const int32_t> known, std::vector<AttentionSpan> spans,
                                                const ContextTokens& parts) const {
  auto work = std::make_shared<Work>();
  for (const AttentionSpan& span : spans) work->longest = std::max(work->longest, span.k_length);
  require_positions(work->longest);
  work->ids = ids;
  if (ranks_.several()) work->held = held_ids(context, known, held_tokens());
  work->held_by_tiles = ids_of_tiles(context, known, table_tiles_);
  if (!table_rows_.empty()) choose_rows(context, known, *work);
  const TokenSlices slices{all_ranks_.slicing(), ids.numel()};
  const Tensor positions = context.empty({slices.all_rows()}, DType::i32);
  work->sequences = {std::move(spans), positions.flat(0, slices.tokens), slices, parts};
  work->local_positions = positions.flat(slices.local_rows().begin, slices.local_rows().end);
  if (slices.tokens < slices.all_rows()) context.zero(positions.flat(slices.tokens, slices.all_rows()));
  // With rotations it takes their tables to tell positions: prepare_rotation() does.
  if (config_.positions == PositionKind::learned) set_positions(context, work->sequences);
  return work;
}

ContextTokens Decoder::parts_of(const Batch& batch) const {
  const ContextTokens parts{all_ranks_.context, batch.input_ids.dim(0), batch.input_ids.dim(1)};
  require<ConfigError>(
      !parts.several() || parts.length >= parts.chunks(),
      "rows of {} tokens cannot be cut over {} ranks of cp_size or sp_size: each needs 2 tokens of a row", parts.length,
      parts.ranks.ranks);
  return parts;
}

std::shared_ptr<MicroBatchState> Decoder::begin(const Context& context, const Batch& batch, double gradient_scale) {
  std::vector<AttentionSpan> spans = spans_of(batch);
  const ContextTokens parts = parts_of(batch);
  Batch part = parts.several() ? part_of(context, batch, parts) : Batch();
  const Batch& own = parts.several() ? part : batch;
  Batch placed = on_device(context, own);
  const std::shared_ptr<Work> work =
      work_on(context, placed.input_ids, own.input_ids.span<int32_t>(), std::move(spans), parts);
  work->row_length = parts.length;
  work->part = std::move(part), work->batch = parts.several() ? &work->part : &batch;
  work->row_keys = row_keys_of(context, batch, work->sequences);
  work->placed = std::move(placed), work->gradient_scale = gradient_scale;
  if (num_routers_ > 0) work->log = std::make_shared<RouterLog>(num_routers_, !batch.placeholder);
  return work;
}

const RouterLog* Decoder::router_log(const MicroBatchState& state) { return static_cast<const Work&>(state).log.get(); }

Tensor Decoder::row_keys_of(const Context& context, const Batch& batch, const Sequences& sequences) const {
  if (config_.adapter.dropout == 0 || batch.row_keys.empty()) return {};
  const int64_t length = batch.input_ids.dim(1);
  std::vector<int64_t> keys;
  for (const uint64_t row : batch.row_keys)
    for (int64_t i = 0; i < length; ++i) {
      const Philox key = philox(row, static_cast<uint64_t>(i));
      keys.push_back(static_cast<int64_t>(uint64_t{key[0]} << 32 | key[1]));
    }
  if (sequences.context.several()) keys = local_of<int64_t>(keys, sequences.context);
  keys.resize(static_cast<size_t>(sequences.slices.all_rows()));
  return context.upload<int64_t>({std::ssize(keys)}, keys);
}

void Decoder::set_positions(const Context& context, const Sequences& sequences) const {
  const int64_t limit = config_.rope.switch_length(), long_begin = rope_ && limit > 0 ? rope_->long_begin : 0;
  const ContextTokens& parts = sequences.context;
  std::vector<int32_t> positions(
      static_cast<size_t>(parts.several() ? parts.rows * parts.length : sequences.positions.numel()));
  for (const AttentionSpan& span : sequences.spans) {
    const int64_t first =
        span.k_length - span.q_length + (span.k_length > limit ? long_begin : 0) + config_.position_offset;
    const auto begin = positions.begin() + span.q_begin;
    std::iota(begin, begin + span.q_length, static_cast<int32_t>(first));
  }
  if (parts.several()) positions = local_of<int32_t>(positions, parts);
  context.upload<int32_t>(positions, sequences.positions);
}

void Decoder::prepare_rotation(const Context& context, Work& work, DType dtype) {
  const int64_t positions = round_up(work.longest, 128);
  const auto lacks = [&](const std::optional<RopeTables>& tables) {
    const int64_t rows = !tables ? 0 : tables->long_begin > 0 ? tables->long_begin : tables->cos.dim(0);
    return rows < work.longest;
  };
  const auto prepare = [&](std::optional<RopeTables>& tables, const RopeOptions& of_config) {
    if (lacks(tables)) tables = make_rope_tables(context, positions, of_config.at_length(work.row_length), dtype);
  };
  if (config_.rotates_by_row() && rope_length_ != work.row_length)
    rope_.reset(), local_rope_.reset(), rope_length_ = work.row_length;
  if (config_.positions == PositionKind::rope && !work.rope) {
    prepare(rope_, config_.rope);
    set_positions(context, work.sequences);
    work.rope = rope_;
  }
  if (config_.local_rope && !work.local_rope) {
    prepare(local_rope_, *config_.local_rope);
    work.local_rope = local_rope_;
  }
  if (config_.query_scale && !work.query_factors) {
    if (lacks(query_factors_))
      query_factors_ = make_query_factors(context, positions, *config_.query_scale, config_.head_dim, dtype);
    work.query_factors = query_factors_;
  }
}

Var Decoder::scaled_branch(Tape& tape, const Var& branch) const {
  return config_.residual_scale == 1 ? branch : scale(tape, branch, config_.residual_scale);
}

const KvCache* Decoder::cache_of(const Tape& tape, const Work& work, size_t index, DType dtype,
                                 KvCache& passing) const {
  if (work.cache) return &work.cache->layers[index];
  const Block& block = blocks_[index];
  if (!kv_dtype_ || tape.recording() || block.conv || block.delta) return nullptr;
  require<ConfigError>(!work.sequences.context.several(),
                       "--kv-dtype: where ranks hold parts of the sequences (cp_size) there is no cache of them");
  const AttentionSpan& last = work.sequences.spans.back();
  passing = make_kv_cache(tape.context(), block_options().heads(), last.k_begin + last.k_length, *kv_dtype_, dtype);
  return &passing;
}

Section Decoder::block_section(const Block& block) {
  const auto index = static_cast<size_t>(&block - blocks_.data());
  return {.unit = block.unit, .body = [this, &block, index](Tape& tape, const Var& in, MicroBatchState& state) {
            Work& work = Work::of(state);
            prepare_rotation(tape.context(), work, in.value.dtype());
            const std::optional<RopeTables>& tables = block.local ? work.local_rope : work.rope;
            const RopeTables* rotation = tables && block.rotated ? &*tables : nullptr;
            const bool scaled = work.query_factors && !(config_.query_scale->unrotated_only && block.rotated);
            const RopeTables* factors = scaled ? &*work.query_factors : nullptr;
            tape.set_row_keys(work.row_keys), tape.leave_out_adapters(leaves_out_adapter_);
            tape.set_adapter_rows(work.adapter_rows);
            const TokenSlices& slices = work.sequences.slices;
            KvCache passing;
            const KvCache* cache = cache_of(tape, work, index, in.value.dtype(), passing);
            const auto part = [&](const char* name, const auto& layer, const Var& x, const auto&... more) {
              return tape.run_part(*block.unit, name, [&] { return layer(tape, x, more...); });
            };
            const auto joined = [&](const char* name, const Norm& norm, const Var& stream, const Var& branch) {
              if (config_.norm_placement == NormPlacement::sum)
                return part(name, norm, add(tape, stream, scaled_branch(tape, branch)));
              return add(tape, stream, scaled_branch(tape, part(name, norm, branch)));
            };
            const Var normed = part("attention_norm", block.attention_norm, in);
            const StateCache* states = work.cache && (block.conv || block.delta) ? &work.cache->states[index] : nullptr;
            const Var branch =
                block.conv    ? part("conv", *block.conv, normed, work.sequences, states)
                : block.delta ? part("delta", *block.delta, normed, work.sequences, states)
                              : part("attention", block.attention, normed, work.sequences, rotation, cache, factors);
            const Var attended = joined("attention_post_norm", block.attention_post_norm, in, branch);
            const Var mlp_in = config_.shared_norm
                                   ? normed
                                   : part("mlp_norm", block.mlp_norm, config_.parallel_residual ? in : attended);
            const Var mlp = block.experts ? part("experts", *block.experts, mlp_in, work.log, block.router, slices)
                                          : part("mlp", block.mlp, mlp_in, slices, mlp_is_unread(block));
            return joined("mlp_post_norm", block.mlp_post_norm, attended, mlp);
          }};
}

std::vector<Section> Decoder::stack(int stage) {
  std::vector<Section> sections;
  if (stage == 0) sections.push_back(embedding_section());
  const auto stride = static_cast<size_t>(recompute_.units_per_checkpoint(config_.num_layers));
  bool trained = embedding_->trained();  // up to here; the walk back ends before, and nothing is kept of what is below
  size_t checkpointed = 0;
  for (const Block& block : blocks_) {
    trained |= block.unit->trained();
    if (stage_of(static_cast<size_t>(&block - blocks_.data()) + 1) != stage) continue;
    Section& section = sections.emplace_back(block_section(block));
    section.recompute = recompute_.mode;
    if (recompute_.mode != Recompute::full) continue;
    if (!trained) section.recompute = Recompute::none;
    section.saved_inputs = &saved_inputs_;
    section.reads_tiles = !mlp_is_unread(block);
    section.joins = trained && checkpointed++ % stride != 0;
  }
  return sections;
}

Section Decoder::counting_section(bool last) {
  return {.unit = nullptr, .body = [this, last](Tape& tape, const Var& in, MicroBatchState& state) {
            const Work& work = Work::of(state);
            if (tape.recording()) counted_.add(*work.log);  // an evaluation is no part of a step
            const ExpertsConfig& experts = *config_.experts;
            if (!pipeline_.several() || !experts.auxiliary_loss) return in;
            work.log->share(tape.context(), experts.num_experts, mesh().group(Group::pipeline));
            if (last) return in;
            return expect_auxiliary_gradient(tape, in, work.log, objective_->weight(*work.batch),
                                             experts.auxiliary_coefficient, work.gradient_scale, balance_ranks());
          }};
}

Section Decoder::balance_section() {
  return {.unit = nullptr, .body = [this](Tape& tape, const Var& loss, MicroBatchState& state) {
            const Work& work = Work::of(state);
            if (!config_.experts->auxiliary_loss) return loss;
            return add_auxiliary_loss(tape, loss, work.log, objective_->weight(*work.batch),
                                      config_.experts->auxiliary_coefficient, work.gradient_scale, balance_ranks());
          }};
}

Var Decoder::loss(Tape& tape, const Batch& batch, double gradient_scale) {
  return run_sections(tape, sections(), {}, begin(tape.context(), batch, gradient_scale));
}

Tensor Decoder::run_batch(const Context& context, const Batch& batch, int64_t columns,
                          const std::function<Tensor(Tape& tape, const Var& hidden)>& head) {
  Tape tape(context, /*recording=*/false);
  std::vector<AttentionSpan> spans = spans_of(batch);
  const ContextTokens parts = parts_of(batch);
  const Tensor ids = parts.several() ? part_of(context, batch, parts).input_ids : batch.input_ids;
  const std::shared_ptr<Work> work =
      work_on(context, context.on_device(ids), ids.span<int32_t>(), std::move(spans), parts);
  work->row_length = parts.length;
  return run_stages(tape, work, {batch.input_ids.numel(), columns},
                    [&](const Var& hidden) { return head(tape, hidden); });
}

Tensor Decoder::logits(const Context& context, const Batch& batch) {
  return run_batch(context, batch, config_.vocab_size,
                   [&](Tape& tape, const Var& hidden) { return head_logits(tape, hidden); });
}

Tensor Decoder::hidden(const Context& context, const Batch& batch) {
  return run_batch(context, batch, config_.hidden_size,
                   [&](Tape& tape, const Var& hidden) { return head_hidden(tape, hidden); });
}

void Decoder::set_updates(int64_t updates) {
  if (fp8_) fp8_->set_updates(updates);
}

Tensor Decoder::step_values(const Context& context) {
  const Tensor maxima = fp8_ ? fp8_->take_maxima(context, mesh().group(Group::fp8_maxima)) : Tensor{};
  if (num_routers_ == 0) return maxima;
  const Tensor loads =
      std::exchange(counted_, {}).summed(context, config_.experts->num_experts, mesh().group(Group::metrics));
  if (!maxima) return loads;
  const Tensor all = context.empty({loads.numel() + maxima.numel()}, DType::f64, Category::workspace);
  context.copy(loads, all.flat(0, loads.numel()));
  context.copy(maxima, all.flat(loads.numel(), all.numel()));
  return all;
}

void Decoder::finish_step(std::span<const double> values) {
  const int64_t loads = num_routers_ > 0 ? 1 + num_routers_ * config_.experts->num_experts : 0;
  if (loads > 0)
    router_loads_ = RouterLoads::of(values.first(static_cast<size_t>(loads)), static_cast<size_t>(num_routers_));
  if (fp8_) fp8_->finish_step(values.subspan(static_cast<size_t>(loads)));
}

std::vector<double> Decoder::state() const { return fp8_ ? fp8_->state() : std::vector<double>{}; }

bool Decoder::restore(std::span<const double> state) { return fp8_ ? fp8_->restore(state) : state.empty(); }

}  // namespace nought
