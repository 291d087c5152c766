// The head of a classifier: the scores of whole sequences, by the hidden state of one token of each.
#include "nought/models/classifier.h"
#include "nought/models/decoder.h"
#include "nought/models/decoder_work.h"
#include "nought/nn/sequence_objective.h"
#include "nought/parallel/conjugate.h"

namespace nought {

namespace {

/// The scored tokens that this rank has, and the sequence of each. There is one at least, of no sequence: -1.
struct ScoredTokens {
  std::vector<int32_t> places, sequences;

  ScoredTokens(const Context& context, const BatchSequences& of) {
    const bool known = of.of_target.defined() && !context.memory->is_virtual();
    for (int64_t place = 0; known && place < of.of_target.numel(); ++place)
      if (const int32_t sequence = of.of_target.data<int32_t>()[place]; sequence >= 0)
        places.push_back(static_cast<int32_t>(place)), sequences.push_back(sequence);
    if (places.empty()) places.resize(std::max<size_t>(known ? 1 : of.all.size(), 1));
    sequences.resize(places.size(), -1);
  }
};

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
  head_weight_ = head_->add(kScoreWeight, {config_.classifier->labels, config_.hidden_size},
                            Init::normal(config_.initializer_range), ParameterRole::head);
}

Var Decoder::score_loss(Tape& tape, const Var& normed, const Work& work) {
  const Context& context = tape.context();
  const auto* objective = dynamic_cast<const SequenceObjective*>(objective_->over_sequences());
  require(objective != nullptr, "a classifier learns from the scores of whole sequences: it has no loss of tokens");
  const BatchSequences& sequences = work.batch->sequences;
  const ScoredTokens scored(context, sequences);
  const auto rows = std::ssize(scored.places);
  const auto labels = static_cast<size_t>(config_.classifier->labels);
  const Var all = gather_for_all(tape, normed, work.sequences.slices);
  const Var picked = pick_rows(tape, all, context.upload<int32_t>({rows}, scored.places));
  const Var scores = linear(tape, picked, head_weight_, {}, WeightLayout::out_in);
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
