// Numbers that say how good the scores of a classifier's head are: of classes, numbers and labels those that
// scikit-learn names so, of pairs those of TRL's RewardTrainer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nought/engine/evaluation.h"
#include "nought/nn/score_loss.h"

namespace nought {

/// Over texts, as they come.
class ScoreMetrics {
 public:
  ScoreMetrics(ProblemType problem, int64_t labels);
  /// scores: one for each label. wanted: see score_loss().
  void add(std::span<const double> scores, std::span<const double> wanted);
  /// Classes: accuracy, f1 (the mean over classes that occur, "macro"). Numbers: mse. Labels: accuracy of whole texts,
  /// f1 over all labels ("micro"). Nothing without texts.
  NamedNumbers numbers() const;

 private:
  struct Counts {
    double right = 0, said = 0, wanted = 0;  // how often a label was said and wanted, was said, was wanted

    double f1() const { return 2 * right / (said + wanted); }
  };
  ProblemType problem_;
  std::vector<Counts> labels_;
  double texts_ = 0, right_ = 0, squares_ = 0;
};

/// min_reward, mean_reward, max_reward, accuracy and margin of the scores of pairs: the chosen text's, the rejected
/// one's.
NamedNumbers reward_metrics(std::span<const double> scores);

}  // namespace nought
