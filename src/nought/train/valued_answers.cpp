#include "nought/train/valued_answers.h"

#include <cmath>

namespace nought {

void ValuedAnswers::begin(std::span<const PolicyAnswer> answers) {
  places_.assign(1, 0);
  for (const PolicyAnswer& answer : answers) {
    const int64_t tokens = std::ssize(answer.written());
    require<ConfigError>(answer.begin > 0, "a prompt without tokens: nothing is expected before it");
    // One place more behind an answer that ended early.
    places_.push_back(places_.back() + tokens + (tokens < most_tokens_ ? 1 : 0));
  }
}

bool ValuedAnswers::take_values(std::span<const float> values) {
  if (std::ssize(values) != places_.back()) return false;
  values_.assign(values.begin(), values.end());
  return true;
}

void ValuedAnswers::judge(std::span<const PolicyAnswer> answers, std::span<const double> scores) {
  const std::vector<float> values = this->values();
  std::vector<PpoAnswer> judged;
  double entropy = 0, score_sum = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    const PolicyAnswer& answer = answers[i];
    const auto first = static_cast<size_t>(places_[i]), places = static_cast<size_t>(places_[i + 1]) - first;
    const auto of_answer = [&](const std::vector<float>& logs) {
      return std::span<const float>(logs).subspan(logs.empty() ? 0 : static_cast<size_t>(answer.begin));
    };
    judged.push_back({.written = of_answer(answer.written_logs),
                      .known = of_answer(answer.known),
                      .values = std::span(values).subspan(first, places),
                      .score = std::isnan(scores[i]) ? 0 : scores[i]});
    score_sum += judged.back().score;
    for (const float log : judged.back().written) entropy -= log;
  }
  const std::vector<PpoWorth> worth = worth_of(options_, judged);
  *targets_ = {.old_values = values_};
  double kl = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    targets_->answers.push_back({.begin = answers[i].begin,
                                 .written = {judged[i].written.begin(), judged[i].written.end()},
                                 .advantages = worth[i].advantages});
    targets_->returns.insert(targets_->returns.end(), worth[i].returns.begin(), worth[i].returns.end());
    kl += worth[i].kl;
  }
  const auto count = static_cast<double>(answers.size());
  const double scores_mean = score_sum / count, penalty = -options_.kl_coef * kl / count;
  metrics_ = {{"objective/kl", kl / count},
              {"objective/entropy", entropy / count},
              {"objective/non_score_reward", penalty},
              {"objective/rlhf_reward", penalty + scores_mean},
              {"objective/scores", scores_mean}};
}

Batch ValuedAnswers::batch(Memory& memory, std::span<const PolicyAnswer> answers, std::span<const int64_t> numbers,
                           const AnswerBatchOptions& options) const {
  std::vector<ValuedAnswer> valued;
  for (const int64_t number : numbers) {
    const PolicyAnswer& answer = answers[static_cast<size_t>(number)];
    // What is expected before a token is said at the one before it.
    valued.push_back({.ids = answer.ids,
                      .places = {answer.begin - 1, answer.begin - 1 + places_of(number)},
                      .number = places_[static_cast<size_t>(number)]});
  }
  return batch_of_places(memory, valued, options);
}

}  // namespace nought
