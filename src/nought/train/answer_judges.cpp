#include "nought/train/answer_judges.h"

#include <cstring>

#include "nought/base/json.h"
#include "nought/comm/first_rank.h"
#include "nought/comm/flight_recorder.h"

namespace nought {

namespace {

/// As text that is as long whatever they are.
std::string bytes_of(const std::vector<double>& values) {
  std::string bytes(values.size() * sizeof(double), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

}  // namespace

AnswerJudges::AnswerJudges(const RunPlan& plan, const Mesh& mesh, const Context& context)
    : mesh_(mesh), context_(context) {
  const AlignmentPlan& alignment = plan.alignment;
  for (const RewardConfig& each : alignment.rewards) {
    rules_.push_back(make_reward(each, alignment.policy_loss.max_completion_length));
    models_.push_back(each.type == RewardType::reward_model ? std::make_unique<RewardModel>(plan, each, mesh, context)
                                                            : nullptr);
  }
}

void AnswerJudges::require_columns(const AnswerData& prompts) const {
  for (int64_t i = 0; i < prompts.num_pairs(); ++i) {
    const Json columns = Json::parse(prompts.columns(i));
    try {
      for (const auto& rule : rules_)
        if (rule) rule->require_columns(columns);
    } catch (const ConfigError& error) {
      fail<ConfigError>("the prompt {} {}", columns.at("prompt").dump().substr(0, 60), error.what());
    }
  }
}

std::vector<double> AnswerJudges::scores(int64_t count, const ListAnswers& list, const MakeScored& scored) const {
  std::vector<double> scores(static_cast<size_t>(count) * size());
  const auto take = [&](size_t k, const std::vector<double>& own) {
    for (size_t i = 0; i < own.size(); ++i) scores[i * size() + k] = own[i];
  };
  const std::string known = found_by_first(mesh_.world(), context_, [&] {
    const std::vector<WrittenAnswer> written = list();
    for (size_t k = 0; k < size(); ++k)
      if (rules_[k]) take(k, rules_[k]->of(written));
    return bytes_of(scores);
  });
  std::memcpy(scores.data(), known.data(), known.size());
  for (size_t k = 0; k < size(); ++k) {
    if (!models_[k]) continue;
    note_phase(mesh_.world(), "reward model");
    const std::optional<int64_t> pad = models_[k]->pad_token_id();
    take(k, models_[k]->scores([&](const auto& each) { scored(pad, each); }, count));
  }
  return scores;
}

}  // namespace nought
