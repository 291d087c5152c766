// The vocabulary of a decoder: the rows that its tokens look up, and those that make logits; whole, shared out over
// ranks, or in tiles of Units.
#include <map>

#include "nought/models/decoder.h"
#include "nought/models/decoder_work.h"
#include "nought/nn/sequence_objective.h"
#include "nought/parallel/conjugate.h"
#include "nought/parallel/vocabulary.h"
#include "nought/tensor/random.h"

namespace nought {

namespace {

/// The rows of an adapter, as a view.
Var some_rows(const Var& all, const AdapterRows& of) {
  return Tape::constant(all.value.slice(of.rows.begin, of.rows.end));
}

}  // namespace

void Decoder::add_table() {
  const std::string name = WeightNames::of(config_).token_embedding + ".weight";
  const Shape table{config_.vocab_size, config_.token_width()};
  const Init init = Init::normal(config_.initializer_range);
  // Ranks that share matrices have parts of it already.
  const bool whole = ranks_.several() || (config_.head_bias && config_.tie_word_embeddings);
  const auto tiles = whole ? std::vector<Unit*>{} : tiles_of(*embedding_, "tokens", config_.vocab_size);
  if (tiles.empty()) {
    tokens_ = ranks_.add(*embedding_, name, {table, 0}, init, ParameterRole::embedding);
  } else {
    table_tiles_ = add_vocabulary_tiles(tiles, name, table, init, ParameterRole::embedding);
  }
  table_rows_ = token_rows(*embedding_, WeightNames::of(config_).token_embedding);
  table_added_ = table_factors(config_.adapter);
  for (const ModelAdapter& each : config_.adapter.choices) table_choices_.push_back(table_factors(each));
}

TokenRows Decoder::token_rows(Unit& unit, const std::string& layer) {
  const auto found = config_.adapter.tokens.find(layer);
  if (found == config_.adapter.tokens.end()) return {};
  const std::vector<int32_t>& tokens = found->second;
  return {ranks_.add_partial(unit, token_rows_name(layer), {std::ssize(tokens), config_.token_width()}, Init::zeros(),
                             ParameterRole::adapter),
          runs_of(tokens, held_tokens())};
}

void Decoder::choose_rows(const Context& context, std::span<const int32_t> ids, Work& work) const {
  const Interval held = held_tokens();
  std::map<int32_t, int32_t> rows;  // that replace those of tokens
  for (const TokenRows::Run& run : table_rows_.runs)
    for (int64_t i = 0; i < run.count; ++i)
      rows[static_cast<int32_t>(held.begin + run.column + i)] = static_cast<int32_t>(run.row + i);
  work.kept = held_ids(context, ids, [&](int32_t id) {
    return held.begin <= id && id < held.end && !rows.contains(id) ? id - static_cast<int32_t>(held.begin) : -1;
  });
  work.replaced = held_ids(context, ids, [&](int32_t id) {
    const auto found = rows.find(id);
    return found == rows.end() ? -1 : found->second;
  });
}

Decoder::VocabularyFactors Decoder::table_factors(const ModelAdapter& adapter) {
  const std::string table = WeightNames::of(config_).token_embedding;
  const LowRank* of = adapter.find(table);
  if (of == nullptr) return {};
  const Init normal = Init::normal(1), start = of->start == AdapterStart::random ? normal : Init::zeros();
  const ParameterView a = ranks_.add(*embedding_, embedding_factor_name(table, 'A', adapter.name),
                                     {{config_.vocab_size, of->rank}, 0}, start, ParameterRole::adapter);
  const ParameterView b =
      all_ranks_.slicing().add_partial(*embedding_, embedding_factor_name(table, 'B', adapter.name),
                                       {config_.token_width(), of->rank}, normal, ParameterRole::adapter);
  return {a, b, of->scale};
}

ParameterView Decoder::add_projection(Unit& unit, const std::string& name, int64_t in, int64_t out) {
  if (config_.projected_size == 0) return {};
  return all_ranks_.slicing().add_partial(unit, name + ".weight", {out, in}, Init::normal(config_.initializer_range),
                                          ParameterRole::matrix);
}

Var Decoder::look_up(Tape& tape, const Work& work) {
  const auto rows_of = [&](const ParameterView& table) {
    return ranks_.several() ? vocabulary_embedding(tape, work.held, table, ranks_, work.sequences.slices)
                            : embedding(tape, work.ids, table);
  };
  const auto add_product = [&](const Var& y, const VocabularyFactors& factors, const Var& rows) {
    return add_to(tape, y, scale(tape, linear(tape, rows, factors.b, {}, WeightLayout::out_in), factors.scale));
  };
  Var y;
  if (!table_rows_.empty() && !tape.leaves_out_adapters()) {
    const Var kept = held_embedding(tape, work.kept, tokens_),
              replaced = held_embedding(tape, work.replaced, table_rows_.rows);
    y = leave_ranks(tape, add_to(tape, kept, replaced), ranks_, work.sequences.slices);
  } else {
    y = table_tiles_.empty() ? rows_of(tokens_) : tiled_embedding(tape, work.held_by_tiles, table_tiles_);
  }
  if (tape.leaves_out_adapters()) return y;
  if (table_added_.a.defined()) y = add_product(y, table_added_, rows_of(table_added_.a));
  for (const AdapterRows& each : tape.adapter_rows())
    if (const VocabularyFactors& factors = table_choices_.at(each.adapter); factors.a.defined())
      add_product(some_rows(y, each), factors, some_rows(rows_of(factors.a), each));
  return y;
}

void Decoder::add_head_weight() {
  if (config_.classifier) return add_score_head();
  if (!config_.predicts_tokens) return;
  if (config_.head_bias)
    head_bias_ = ranks_.add(*head_, WeightNames::of(config_).head + ".bias", {{config_.vocab_size}, 0}, Init::zeros(),
                            ParameterRole::bias);
  if (config_.tie_word_embeddings) {
    head_weight_ = tokens_, head_tiles_ = table_tiles_, head_rows_ = table_rows_;
    head_tiles_.empty() ? head_->borrow(*embedding_) : head_->borrow_tiles(*embedding_);
    return add_head_adapters();
  }
  const std::string name = WeightNames::of(config_).head + ".weight";
  const Shape table{config_.vocab_size, config_.token_width()};
  const Init init = Init::normal(config_.initializer_range);
  const bool whole = ranks_.several() || config_.head_bias;
  const auto tiles = whole ? std::vector<Unit*>{} : tiles_of(*head_, "logits", config_.vocab_size);
  if (tiles.empty()) {
    head_weight_ = ranks_.add(*head_, name, {table, 0}, init, ParameterRole::head);
  } else {
    head_tiles_ = add_vocabulary_tiles(tiles, name, table, init, ParameterRole::head);
  }
  add_head_adapters();
}

void Decoder::add_head_adapters() {
  if (!config_.tie_word_embeddings) head_rows_ = token_rows(*head_, WeightNames::of(config_).head);
  head_added_ = head_factors(config_.adapter);
  for (const ModelAdapter& each : config_.adapter.choices) head_choices_.push_back(head_factors(each));
}

Decoder::VocabularyFactors Decoder::head_factors(const ModelAdapter& adapter) {
  const std::string name = WeightNames::of(config_).head;
  const LowRank* of = adapter.find(name);
  if (of == nullptr) return {};
  const int64_t width = config_.token_width();
  const ParameterView a = ranks_.add_partial(*head_, low_rank_name(name, 'A', adapter.name), {of->rank, width},
                                             start_of_factor(*of, 'A', width), ParameterRole::adapter);
  const ParameterView b =
      ranks_.add(*head_, low_rank_name(name, 'B', adapter.name), {{config_.vocab_size, of->rank}, 0},
                 start_of_factor(*of, 'B', width), ParameterRole::adapter);
  return {a, b, of->scale};
}

AddedLogits Decoder::added_logits(Tape& tape, const Var& x) const {
  if (tape.leaves_out_adapters()) return {.bias = head_bias_};
  if (!head_added_.a.defined()) return {.bias = head_bias_, .token_rows = head_rows_};
  const LowRankDropout dropout{.probability = config_.adapter.dropout,
                               .key = stable_hash(WeightNames::of(config_).head),
                               .rows = tape.row_keys() ? tape.row_keys().slice(0, x.value.rows()) : Tensor()};
  const Var left = dropout.active() ? drop(tape, x, dropout) : x;
  const Var z = scale(tape, linear(tape, left, head_added_.a, {}, WeightLayout::out_in), head_added_.scale);
  return {z, head_added_.b, head_bias_, head_rows_};
}

Section Decoder::embedding_section() {
  return {.unit = embedding_, .body = [this](Tape& tape, const Var&, MicroBatchState& state) {
            const Work& work = Work::of(state);
            tape.leave_out_adapters(leaves_out_adapter_), tape.set_adapter_rows(work.adapter_rows);
            Var y = look_up(tape, work);
            if (config_.embedding_scale != 1) y = scale(tape, y, config_.embedding_scale);
            if (project_in_.defined()) y = linear(tape, y, project_in_, {}, WeightLayout::out_in);
            if (positions_.defined()) y = add_embedding(tape, y, work.local_positions, positions_);
            if (token_types_.defined())
              y = add_embedding(tape, y, tape.context().zeros(work.local_positions.shape(), DType::i32), token_types_);
            return config_.embedding_norm ? embedding_norm_(tape, y) : y;
          }};
}

Var Decoder::head_input(Tape& tape, const Var& hidden, double temperature) const {
  const Var normed = final_norm_(tape, hidden);
  const Var rows = project_out_.defined() ? linear(tape, normed, project_out_, {}, WeightLayout::out_in) : normed;
  const double divisor = config_.logit_divisor * temperature;
  return divisor == 1 ? rows : scale(tape, rows, 1 / divisor);
}

Var Decoder::head_loss(Tape& tape, const Var& normed, const Work& work, const Batch& batch, const Batch& placed,
                       const TargetNumbers& numbers) {
  if (!head_tiles_.empty())
    return tiled_cross_entropy_head(tape, normed, head_tiles_,
                                    objective_->targets_of_tiles(tape.context(), batch, head_tiles_),
                                    work.gradient_scale, config_.logit_softcap, /*shared=*/config_.tie_word_embeddings);
  RowLoss rows = ranks_.several() ? objective_->rows_of_part(tape.context(), batch, held_tokens(), ranks_)
                                  : objective_->rows(placed);
  if (numbers.losses)
    rows = [rows, numbers, vocabulary = config_.vocab_size](const Context& context, const LogitRows& some) {
      rows(context, some);
      context.copy(some.losses, numbers.losses.flat(some.tokens.begin, some.tokens.end));
      if (numbers.logs) entropy_parts(context, rows, some, vocabulary, numbers.logs, numbers.means);
    };
  tape.set_row_keys(work.row_keys), tape.leave_out_adapters(leaves_out_adapter_);
  const Var x = enter_ranks(tape, normed, ranks_, work.sequences.slices);
  const Var loss =
      loss_head(tape, x, head_weight_, rows, work.gradient_scale, config_.logit_softcap, added_logits(tape, x));
  return sum_over_ranks(tape, loss, ranks_);
}

namespace {

std::vector<double> doubles_of(const Context& context, const Tensor& tensor) {
  const Tensor known = context.on_host(tensor);
  std::vector<double> values(static_cast<size_t>(known.numel()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = known.dtype() == DType::f64 ? known.data<double>()[i] : double{known.data<float>()[i]};
  return values;
}

}  // namespace

Var Decoder::sequence_loss(Tape& tape, const Var& normed, const Work& work, const WeighedObjective& objective) {
  const Context& context = tape.context();
  Batch batch = *work.batch, placed = work.placed;
  const auto for_targets = [&] {
    return context.empty({batch.targets.numel()}, statistics_dtype(normed.value.dtype()));
  };
  TargetNumbers numbers{.losses = for_targets()};
  if (objective.wants_entropies()) numbers.logs = for_targets(), numbers.means = for_targets();
  batch.weights = placed.weights = {};
  Tape aside(context, /*recording=*/false);
  head_loss(aside, Tape::constant(normed.value), work, batch, placed, numbers);
  const auto known = [&](const Tensor& of) {
    std::vector<double> values = doubles_of(context, of);
    if (ranks_.several()) all_reduce_values(ranks_.group(), context, values);
    return values;
  };
  const std::vector<double> losses = known(numbers.losses);
  std::vector<double> entropies;
  if (numbers.logs) {
    entropies = known(numbers.logs);
    const std::vector<double> means = known(numbers.means);
    for (size_t i = 0; i < entropies.size(); ++i) entropies[i] -= means[i];
  }
  const WeighedObjective::Weighed weighed =
      objective.weigh_with_entropies(context, *work.batch, losses, entropies, all_ranks_.context.group);
  Var loss = Tape::constant(context.upload<double>({1}, std::vector{weighed.loss}));
  if (!tape.recording()) return loss;
  batch.weights = Tensor::of<float>(*context.memory, batch.targets.shape(), weighed.weights);
  placed.weights = context.on_device(batch.weights);
  const Var weighted = head_loss(tape, normed, work, batch, placed, {});
  context.copy(loss.value, weighted.value);  // its gradients are those of the loss, and its value is none
  return weighted;
}

void Decoder::require_temperature(double temperature) const {
  require<ConfigError>(temperature == 1 || config_.logit_softcap == 0,
                       "alignment.temperature {}: the logits of a model are capped: set it to 1", temperature);
}

Section Decoder::head_section() {
  return {.unit = head_, .body = [this](Tape& tape, const Var& in, MicroBatchState& state) {
            const Work& work = Work::of(state);
            const WeighedObjective* sequences = objective_->over_sequences();
            const double temperature = objective_->temperature();
            require_temperature(temperature);
            const Var normed = tape.run_part(*head_, "norm", [&] {
              return config_.classifier ? final_norm_(tape, in) : head_input(tape, in, temperature);
            });
            return tape.run_part(*head_, "loss", [&] {
              if (config_.classifier) return score_loss(tape, normed, work);
              if (sequences != nullptr) return sequence_loss(tape, normed, work, *sequences);
              Var loss;
              objective_->around(tape.context(),
                                 [&] { loss = head_loss(tape, normed, work, *work.batch, work.placed, {}); });
              return loss;
            });
          }};
}

Tensor Decoder::head_hidden(Tape& tape, const Var& hidden) {
  Tensor normed;
  tape.run_unit(*head_, hidden, [&](Tape& inner, const Var& in) {
    normed = final_norm_(inner, in).value;
    return in;
  });
  return normed;
}

Tensor Decoder::logits_part(Tape& tape, const Var& input) {
  const Tensor part = head_tiles_.empty() ? linear(tape, input, head_weight_, head_bias_, WeightLayout::out_in).value
                                          : tiled_logits(tape, input, head_tiles_);
  const auto add = [&](const Tensor& z, const ParameterView& b, const Tensor& logits) {
    tape.context().run(MatMul{.a = z, .b = b.value(), .c = logits, .transpose_b = true, .accumulate = true});
  };
  const AddedLogits added = added_logits(tape, input);
  if (!added.token_rows.empty()) put_token_logits(tape.context(), input.value, added.token_rows, part);
  if (added.adapts()) add(added.z.value, added.b, part);
  for (const AdapterRows& each : tape.adapter_rows()) {
    const VocabularyFactors& factors = head_choices_.at(each.adapter);
    if (!factors.a.defined()) continue;
    const Var z = linear(tape, some_rows(input, each), factors.a, {}, WeightLayout::out_in);
    add(scale(tape, z, factors.scale).value, factors.b, part.slice(each.rows.begin, each.rows.end));
  }
  return part;
}

Tensor Decoder::whole_logits(const Context& context, const Tensor& part) const {
  const Tensor logits = gather_columns(context, part, config_.vocab_size, ranks_);
  if (config_.logit_softcap > 0) context.run(Softcap{.x = logits, .cap = config_.logit_softcap});
  return logits;
}

Tensor Decoder::head_logits(Tape& tape, const Var& hidden) {
  Tensor part;
  tape.run_unit(*head_, hidden, [&](Tape& inner, const Var& in) {
    part = logits_part(inner, head_input(inner, in));
    return in;
  });
  return whole_logits(tape.context(), part);
}

Tensor Decoder::head_inputs(const Context& context, const Batch& batch, double temperature) {
  require_temperature(temperature);
  return run_batch(context, batch, config_.token_width(), [&](Tape& tape, const Var& hidden) {
    Tensor rows;
    tape.run_unit(*head_, hidden, [&](Tape& inner, const Var& in) {
      rows = head_input(inner, in, temperature).value;
      return in;
    });
    return rows;
  });
}

void Decoder::with_head(const Context& context, const std::function<void(const LogitsOfRows& logits_of)>& body) {
  Tape tape(context, /*recording=*/false);
  tape.run_unit(*head_, {}, [&](Tape& inner, const Var& in) {
    body([&](const Tensor& rows) { return whole_logits(context, logits_part(inner, Tape::constant(rows))); });
    return in;
  });
}

}  // namespace nought
