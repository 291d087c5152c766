#include "nought/nn/score_loss.h"

#include <algorithm>
#include <cmath>

#include <fmt/ranges.h>

#include "nought/base/error.h"
#include "nought/nn/preference_loss.h"

namespace nought {

namespace {

ScoreLoss cross_entropy(std::span<const double> scores, std::span<const double> wanted) {
  const double largest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (const double score : scores) sum += std::exp(score - largest);
  const auto right = static_cast<size_t>(wanted[0]);
  ScoreLoss result{.loss = largest + std::log(sum) - scores[right]};
  for (const double score : scores) result.slopes.push_back(std::exp(score - largest) / sum);
  result.slopes[right] -= 1;
  return result;
}

}  // namespace

void require_wanted(ProblemType problem, int64_t labels, std::span<const double> wanted) {
  const auto is = [&](auto&& each) { return std::all_of(wanted.begin(), wanted.end(), each); };
  if (problem == ProblemType::single_label_classification) {
    require<ConfigError>(wanted.size() == 1 && is([&](double of) {
                           return of == std::floor(of) && 0 <= of && of < static_cast<double>(labels);
                         }),
                         "the label must be the index of one of {} classes, from 0 to {}, got {}", labels, labels - 1,
                         fmt::join(wanted, ", "));
    return;
  }
  require<ConfigError>(std::ssize(wanted) == labels, "the classifier has {} labels, and here are the numbers of {}",
                       labels, wanted.size());
  const bool multi = problem == ProblemType::multi_label_classification;
  require<ConfigError>(is([&](double of) { return std::isfinite(of) && (!multi || (0 <= of && of <= 1)); }),
                       "the labels must be {}, got {}", multi ? "numbers from 0 to 1" : "finite numbers",
                       fmt::join(wanted, ", "));
}

ScoreLoss score_loss(ProblemType problem, std::span<const double> scores, std::span<const double> wanted) {
  require_wanted(problem, std::ssize(scores), wanted);
  if (problem == ProblemType::single_label_classification) return cross_entropy(scores, wanted);
  const auto labels = static_cast<double>(scores.size());
  ScoreLoss result;
  for (size_t i = 0; i < scores.size(); ++i) {
    const double score = scores[i], value = wanted[i];
    if (problem == ProblemType::regression) {
      result.loss += (score - value) * (score - value) / labels;
      result.slopes.push_back(2 * (score - value) / labels);
      continue;
    }
    const double probability = std::exp(log_sigmoid(score));
    result.loss -= (value * log_sigmoid(score) + (1 - value) * log_sigmoid(-score)) / labels;
    result.slopes.push_back((probability - value) / labels);
  }
  return result;
}

int64_t best_class(std::span<const double> scores) {
  return std::max_element(scores.begin(), scores.end()) - scores.begin();
}

RewardLoss reward_loss(double chosen, double rejected, double margin, double center) {
  const double apart = chosen - rejected - margin, sum = chosen + rejected;
  const double slope = -std::exp(log_sigmoid(-apart)), pull = 2 * center * sum;
  return {-log_sigmoid(apart) + center * sum * sum, slope + pull, -slope + pull};
}

}  // namespace nought
