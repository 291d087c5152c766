// The head of a classifier: the scores of whole sequences, by the hidden state of one token of each, or their mean.
#include "nought/autograd/pooling.h"
#include "nought/models/decoder.h"
#include "nought/models/decoder_work.h"
#include "nought/models/names.h"
#include "nought/nn/sequence_objective.h"
#include "nought/parallel/conjugate.h"

namespace nought {

/// The scored tokens that this rank has, and the sequence of each row of scores. There is one row at least, of no
/// sequence: -1.
struct Decoder::ScoredTokens {
  std::vector<int32_t> places, sequences;
  std::vector<int64_t> counts;  // where rows are means: of how many places in turn

  ScoredTokens(const Context& context, const BatchSequences& of, ScorePooling pooling) {
    const bool known = of.of_target.defined() && !context.memory->is_virtual(), mean = pooling == ScorePooling::mean;
    for (int64_t place = 0; known && place < of.of_target.numel(); ++place) {
      const int32_t sequence = of.of_target.data<int32_t>()[place];
      if (sequence < 0) continue;
      places.push_back(static_cast<int32_t>(place));
      const bool goes_on = mean && !sequences.empty() && sequences.back() == sequence;
      if (!goes_on) sequences.push_back(sequence), counts.push_back(0);
      ++counts.back();
    }
    if (!places.empty()) return;
    const size_t rows = std::max<size_t>(known ? 1 : of.all.size(), 1);
    places.resize(rows), sequences.resize(rows, -1), counts.resize(rows, 1);
  }
  /// What each token counts in the mean of its row: [rows, tokens].
  Tensor means(const Context& context, int64_t tokens, DType dtype) const {
    std::vector<float> factors(sequences.size() * static_cast<size_t>(tokens));
    size_t at = 0;
    for (size_t row = 0; row < sequences.size(); ++row)
      for (int64_t i = 0; i < counts[row]; ++i)
        factors[row * static_cast<size_t>(tokens) + static_cast<size_t>(places[at++])] =
            1 / static_cast<float>(counts[row]);
    const Tensor wide = context.upload<float>({std::ssize(sequences), tokens}, factors);
    if (dtype == DType::f32) return wide;
    const Tensor narrow = context.empty(wide.shape(), dtype);
    context.run(Cast{.x = wide, .y = narrow});
    return narrow;
  }
};

namespace {

std::vector<double> values_of(const Context& context, const Tensor& scores) {
  std::vector<double> values(static_cast<size_t>(scores.numel()));
  const Tensor wide = context.empty(scores.shape(), DType::f64, Category::workspace);
  context.run(Cast{.x = scores, .y = wide});
  const Tensor known = context.on_host(wide);
  if (!context.memory->is_virtual()) std::copy_n(known.data<double>(), values.size(), values.begin());
  return values;
}

}  // namespace

void Decoder::add_score_head() {
  require<ConfigError>(config_.projected_size == 0,
                       "word_embed_proj_dim: a classifier of rows that are projected is not supported");
  const ClassifierConfig& classifier = *config_.classifier;
  const WeightNames names = WeightNames::of(config_);
  const Init init = Init::normal(config_.initializer_range);
  const int64_t hidden = config_.hidden_size;
  if (classifier.layer) {
    score_layer_ = head_->add(names.score_layer + ".weight", {hidden, hidden}, init, ParameterRole::head);
    if (classifier.layer->bias)
      score_layer_bias_ = head_->add(names.score_layer + ".bias", {hidden}, Init::zeros(), ParameterRole::bias);
    Norm::Options norm = block_options().norm();
    norm.slicing = {};  // the states that are scored are whole on every rank
    if (classifier.layer->norm) score_norm_ = Norm(*head_, names.score_norm, norm);
  }
  head_weight_ = head_->add(names.score + ".weight", {classifier.labels, hidden}, init, ParameterRole::head);
  if (classifier.bias)
    head_bias_ = head_->add(names.score + ".bias", {classifier.labels}, Init::zeros(), ParameterRole::bias);
}

Var Decoder::scored_states(Tape& tape, const Var& all, const ScoredTokens& scored) const {
  const Context& context = tape.context();
  const ClassifierConfig& classifier = *config_.classifier;
  const Var states = classifier.pooling == ScorePooling::mean
                         ? mix_rows(tape, scored.means(context, all.value.rows(), all.value.dtype()), all)
                         : pick_rows(tape, all, context.upload<int32_t>({std::ssize(scored.places)}, scored.places));
  if (!classifier.layer) return states;
  const Var dense = linear(tape, states, score_layer_, score_layer_bias_, WeightLayout::out_in);
  const auto& activation = classifier.layer->activation;
  return score_norm_(tape, activation ? activate(tape, dense, *activation) : tanh(tape, dense));
}

Var Decoder::score_loss(Tape& tape, const Var& normed, const Work& work) {
  const Context& context = tape.context();
  const auto* objective = dynamic_cast<const SequenceObjective*>(objective_->over_sequences());
  require(objective != nullptr, "a classifier learns from the scores of whole sequences: it has no loss of tokens");
  const BatchSequences& sequences = work.batch->sequences;
  const ScoredTokens scored(context, sequences, config_.classifier->pooling);
  const auto labels = static_cast<size_t>(config_.classifier->labels);
  const Var all = gather_for_all(tape, normed, work.sequences.slices);
  const Var scores = linear(tape, scored_states(tape, all, scored), head_weight_, head_bias_, WeightLayout::out_in);
  const std::vector<double> values = values_of(context, scores.value);
  std::vector<double> known(sequences.all.size() * labels), slopes(values.size());
  const auto for_each_score = [&](auto&& body) {
    for (size_t i = 0; i < values.size(); ++i)
      if (const int32_t sequence = scored.sequences[i / labels]; sequence >= 0)
        body(i, static_cast<size_t>(sequence) * labels + i % labels);
  };
  for_each_score([&](size_t own, size_t of_all) { known.at(of_all) = values[own]; });
  const SequenceObjective::Loss judged =
      objective->judge(context, *work.batch, std::move(known), all_ranks_.context.group);
  const Tensor loss = context.upload<double>({1}, std::vector{judged.loss * sequences.share});
  if (!tape.recording()) return Tape::constant(loss);
  for_each_score([&](size_t own, size_t of_all) { slopes[own] = judged.slopes.at(of_all) * work.gradient_scale; });
  const Tensor wide = context.upload<double>(scores.value.shape(), slopes);
  const Tensor gradient = context.empty(wide.shape(), scores.value.dtype());
  context.run(Cast{.x = wide, .y = gradient});
  return known_loss(tape, scores, loss, gradient);
}

}  // namespace nought
