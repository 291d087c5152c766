#include "nought/nn/sequence_objective.h"

#include <algorithm>

#include "nought/comm/mesh.h"

namespace nought {

double SequenceObjective::weight(const Batch& batch) const {
  return batch.sequences.share * static_cast<double>(batch.sequences.all.size()) / static_cast<double>(per_example_);
}

WeighedObjective::Weighed SequenceObjective::weigh(const Context& context, const Batch& batch,
                                                   std::span<const double> losses, Communicator* parts) const {
  const BatchSequences& sequences = batch.sequences;
  const auto count = static_cast<int64_t>(losses.size());
  require<ShapeError>(batch.targets.numel() == count, "{} targets but {} losses", batch.targets.numel(), count);
  Weighed weighed{.loss = 0, .weights = std::vector<float>(losses.size())};
  std::vector<double> sums(sequences.all.size());
  const int32_t* of = sequences.of_target.defined() ? sequences.of_target.data<int32_t>() : nullptr;
  const float* counted = batch.weights.defined() ? batch.weights.data<float>() : nullptr;
  const float* likelihood = sequences.likelihood.defined() ? sequences.likelihood.data<float>() : nullptr;
  const auto weight_of = [&](int64_t i) { return counted == nullptr ? 1.0 : double{counted[i]}; };
  for (int64_t i = 0; of != nullptr && i < count; ++i)
    if (of[i] >= 0) sums.at(static_cast<size_t>(of[i])) -= weight_of(i) * losses[static_cast<size_t>(i)];
  const Loss loss = judge(context, batch, std::move(sums), parts);
  if (!loss_) return weighed;
  weighed.loss = loss.loss * sequences.share;
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    double weight = 0;
    if (of != nullptr && of[i] >= 0) weight -= loss.slopes.at(static_cast<size_t>(of[i])) * weight_of(i);
    if (likelihood != nullptr) weight += double{likelihood[i]}, weighed.loss += double{likelihood[i]} * losses[at];
    weighed.weights[at] = static_cast<float>(weight);
  }
  return weighed;
}

SequenceObjective::Loss SequenceObjective::judge(const Context& context, const Batch& batch, std::vector<double> sums,
                                                 Communicator* parts) const {
  const BatchSequences& sequences = batch.sequences;
  if (parts != nullptr && !sums.empty()) all_reduce_values(*parts, context, sums);
  const size_t each = sums.size() / std::max<size_t>(sequences.all.size(), 1);
  if (sums_)
    for (size_t i = 0; i < sums.size(); ++i)
      sums_->at(static_cast<size_t>(sequences.all[i / each].number) * each + i % each) = sums[i] * sequences.share;
  return loss_ ? loss_(sequences.all, sums) : Loss();
}

SequenceObjective::LossOf loss_of_pairs(const PairLossOptions& options) {
  return [options](std::span<const BatchSequence> sequences, std::span<const double> sums) {
    SequenceObjective::Loss loss;
    for (size_t i = 0; i + 1 < sequences.size(); i += 2) {
      const auto answer = [&](size_t at) {
        return AnswerSums{sums[at], sequences[at].reference, sequences[at].targets};
      };
      const PairLoss pair = pair_loss(options, answer(i), answer(i + 1));
      loss.loss += pair.loss;
      loss.slopes.push_back(pair.d_chosen), loss.slopes.push_back(pair.d_rejected);
    }
    return loss;
  };
}

SequenceObjective::LossOf loss_of_rewards(double center) {
  return [center](std::span<const BatchSequence> sequences, std::span<const double> scores) {
    SequenceObjective::Loss loss;
    for (size_t i = 0; i + 1 < sequences.size(); i += 2) {
      const double margin = sequences[i].wanted.empty() ? 0 : sequences[i].wanted[0];
      const RewardLoss pair = reward_loss(scores[i], scores[i + 1], margin, center);
      loss.loss += pair.loss;
      loss.slopes.push_back(pair.d_chosen), loss.slopes.push_back(pair.d_rejected);
    }
    return loss;
  };
}

SequenceObjective::LossOf loss_of_scores(ProblemType problem, int64_t labels) {
  return [problem, each = static_cast<size_t>(labels)](std::span<const BatchSequence> sequences,
                                                       std::span<const double> scores) {
    SequenceObjective::Loss loss;
    for (size_t i = 0; i < sequences.size(); ++i) {
      const bool judged = !sequences[i].wanted.empty();  // else the texts are only scored
      const ScoreLoss one = judged ? score_loss(problem, scores.subspan(i * each, each), sequences[i].wanted)
                                   : ScoreLoss{.loss = 0, .slopes = std::vector<double>(each)};
      loss.loss += one.loss;
      loss.slopes.insert(loss.slopes.end(), one.slopes.begin(), one.slopes.end());
    }
    return loss;
  };
}

SequenceObjective::LossOf loss_of_labels(const LabelLossOptions& options, std::shared_ptr<const double> kl) {
  return [options, kl = std::move(kl)](std::span<const BatchSequence> sequences, std::span<const double> sums) {
    SequenceObjective::Loss loss;
    for (size_t i = 0; i < sequences.size(); ++i) {
      const bool judged = sequences[i].label != AnswerLabel::unjudged;
      const bool desirable = sequences[i].label == AnswerLabel::desirable;
      const LabelLoss each =
          judged ? label_loss(options, desirable, sums[i] - sequences[i].reference, *kl) : LabelLoss();
      loss.loss += each.loss;
      loss.slopes.push_back(each.slope);
    }
    return loss;
  };
}

}  // namespace nought
