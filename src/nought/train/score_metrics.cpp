#include "nought/train/score_metrics.h"

#include <algorithm>
#include <numeric>

namespace nought {

ScoreMetrics::ScoreMetrics(ProblemType problem, int64_t labels)
    : problem_(problem), labels_(static_cast<size_t>(labels)) {}

void ScoreMetrics::add(std::span<const double> scores, std::span<const double> wanted) {
  ++texts_;
  if (problem_ == ProblemType::regression) {
    for (size_t i = 0; i < scores.size(); ++i) squares_ += (scores[i] - wanted[i]) * (scores[i] - wanted[i]);
    return;
  }
  const bool one = problem_ == ProblemType::single_label_classification;
  const auto best = static_cast<size_t>(best_class(scores));
  bool all = true;
  for (size_t i = 0; i < scores.size(); ++i) {
    const bool says = one ? i == best : scores[i] > 0,
               wants = one ? static_cast<double>(i) == wanted[0] : wanted[i] > 0.5;
    labels_[i].said += says ? 1 : 0, labels_[i].wanted += wants ? 1 : 0, labels_[i].right += says && wants ? 1 : 0;
    all = all && says == wants;
  }
  right_ += all ? 1 : 0;
}

NamedNumbers ScoreMetrics::numbers() const {
  if (texts_ == 0) return {};
  const auto labels = static_cast<double>(labels_.size());
  if (problem_ == ProblemType::regression) return {{"mse", squares_ / (texts_ * labels)}};
  if (problem_ == ProblemType::multi_label_classification) {
    Counts all;
    for (const Counts& each : labels_) all.right += each.right, all.said += each.said, all.wanted += each.wanted;
    return {{"accuracy", right_ / texts_}, {"f1", all.said + all.wanted > 0 ? all.f1() : 0}};
  }
  double sum = 0, occurring = 0;
  for (const Counts& each : labels_)
    if (each.said + each.wanted > 0) sum += each.f1(), ++occurring;
  return {{"accuracy", right_ / texts_}, {"f1", sum / occurring}};
}

NamedNumbers reward_metrics(std::span<const double> scores) {
  if (scores.size() < 2) return {};
  const auto pairs = static_cast<double>(scores.size() / 2);
  double right = 0, margin = 0;
  for (size_t i = 0; i + 1 < scores.size(); i += 2)
    right += scores[i] > scores[i + 1] ? 1 : 0, margin += scores[i] - scores[i + 1];
  const auto [least, most] = std::minmax_element(scores.begin(), scores.end());
  return {{"min_reward", *least},
          {"mean_reward", std::accumulate(scores.begin(), scores.end(), 0.0) / (2 * pairs)},
          {"max_reward", *most},
          {"accuracy", right / pairs},
          {"margin", margin / pairs}};
}

}  // namespace nought
