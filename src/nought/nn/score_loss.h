// Losses of the scores that a classifier's head gives sequences: classes, numbers, labels, and rewards of pairs.
//
// Design goals: plain numbers, so that a loss and its derivatives are tested alone; names, defaults and formulas are
// those of transformers 5 (problem_type) and of TRL 1.16 (RewardTrainer). Non-goals: the head (models/decoder_scores).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "nought/base/visit.h"

namespace nought {

/// What a classifier's scores mean: transformers' names.
enum class ProblemType : uint8_t {
  single_label_classification,  // logits of classes, of which one is right
  regression,                   // numbers
  multi_label_classification    // logits of labels, of which any are right
};

template <>
struct EnumNames<ProblemType> {
  static constexpr std::array<std::pair<ProblemType, std::string_view>, 3> value{
      {{ProblemType::single_label_classification, "single_label_classification"},
       {ProblemType::regression, "regression"},
       {ProblemType::multi_label_classification, "multi_label_classification"}}};
};

/// Which hidden states of a sequence a classifier's head scores.
enum class ScorePooling : uint8_t {
  last_token,   // that of the last token that is no padding
  first_token,  // that of the first one, as encoders have it
  mean          // the mean of all
};

/// ConfigError unless it is what a classifier of so many labels may be asked to say.
void require_wanted(ProblemType problem, int64_t labels, std::span<const double> wanted);
/// The loss of one sequence, whose mean over sequences is transformers' loss, and its derivative by each score.
struct ScoreLoss {
  double loss = 0;
  std::vector<double> slopes = {};
};
/// scores: one for each label. wanted: of single_label_classification the index of the right class; else a number for
/// each label.
ScoreLoss score_loss(ProblemType problem, std::span<const double> scores, std::span<const double> wanted);
/// The index of the largest score, the first of equal ones.
int64_t best_class(std::span<const double> scores);

/// The loss of two answers to a prompt (arXiv 2203.02155), and its derivatives by their scores.
struct RewardLoss {
  double loss = 0, d_chosen = 0, d_rejected = 0;
};
/// -log(sigmoid(chosen - rejected - margin)) + center * (chosen + rejected)^2.
RewardLoss reward_loss(double chosen, double rejected, double margin, double center);

}  // namespace nought
