// AnswerJudges: what says how good the answers of a run are: rules and programs on one rank, and models on all.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "nought/data/answer_data.h"
#include "nought/rewards/reward.h"
#include "nought/train/reward_model.h"

namespace nought {

class AnswerJudges {
 public:
  /// All of alignment.reward_funcs. Loads models. Collective.
  AnswerJudges(const RunPlan& plan, const Mesh& mesh, const Context& context);

  /// How many there are.
  size_t size() const { return rules_.size(); }
  /// ConfigError names a prompt that some can not judge answers to.
  void require_columns(const AnswerData& prompts) const;
  /// What the answers are to rules and programs: texts with the columns of their prompts. On rank 0 alone.
  using ListAnswers = std::function<std::vector<WrittenAnswer>()>;
  /// What they are to models: batches of texts that are scored with this pad_token_id.
  using MakeScored = std::function<void(std::optional<int64_t> pad_token_id, const std::function<void(const Batch&)>&)>;
  /// [count, size()], NaN: not scored. Collective.
  std::vector<double> scores(int64_t count, const ListAnswers& list, const MakeScored& scored) const;

 private:
  const Mesh& mesh_;
  Context context_;
  std::vector<std::unique_ptr<Reward>> rules_;        // null where a model judges
  std::vector<std::unique_ptr<RewardModel>> models_;  // null where a rule does
};

}  // namespace nought
