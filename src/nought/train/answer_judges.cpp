#include "nought/train/answer_judges.h"

#include <cmath>
#include <limits>

#include "nought/base/json.h"
#include "nought/comm/first_rank.h"
#include "nought/comm/flight_recorder.h"

namespace nought {

namespace {

Json number_or_null(double value) { return std::isnan(value) ? Json() : Json(value); }
double number_of(const Json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
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
  const std::string known = found_by_first(mesh_.world(), context_, [&] {
    const std::vector<WrittenAnswer> written = list();
    Json all = Json::array();
    for (const auto& rule : rules_) {
      Json& own = all.emplace_back(Json::array());
      if (rule)
        for (const double score : rule->of(written)) own.push_back(number_or_null(score));
    }
    return all.dump();
  });
  const Json by_rules = Json::parse(known);
  for (size_t k = 0; k < size(); ++k) {
    std::vector<double> own;
    for (const Json& score : by_rules.at(k)) own.push_back(number_of(score));
    if (models_[k]) {
      note_phase(mesh_.world(), "reward model");
      const std::optional<int64_t> pad = models_[k]->pad_token_id();
      own = models_[k]->scores([&](const auto& take) { scored(pad, take); }, count);
    }
    for (size_t i = 0; i < own.size(); ++i) scores[i * size() + k] = own[i];
  }
  return scores;
}

}  // namespace nought
