// ValuedAnswers: what a value model makes of the answers of a policy, for proximal policy optimization: what it expects
// at each of their tokens, what these are worth, and the batches that it learns from.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "nought/config/alignment_plan.h"
#include "nought/data/answer_batch.h"
#include "nought/engine/evaluation.h"
#include "nought/nn/ppo_objective.h"
#include "nought/train/policy_answer.h"
#include "nought/train/value_model.h"

namespace nought {

class ValuedAnswers {
 public:
  /// model: outlives this object.
  ValuedAnswers(const AlignmentPlan& plan, ValueModel& model)
      : options_(plan.ppo->options), most_tokens_(plan.policy_loss.max_completion_length), model_(model) {}

  /// These are the answers, whose values are not known yet.
  void begin(std::span<const PolicyAnswer> answers);
  /// Asks the value model. `batches` are all answers, each of a batch() of some. Collective.
  void ask(const MakeBatches& batches) { values_ = model_.values(batches, places_.back()); }
  /// Or the values are known. False if they are too few or too many.
  bool take_values(std::span<const float> values);
  /// What the tokens are worth. scores: of the answers, NaN where nobody has judged them, which counts 0.
  void judge(std::span<const PolicyAnswer> answers, std::span<const double> scores);

  /// The answers with these numbers, in a row.
  Batch batch(Memory& memory, std::span<const PolicyAnswer> answers, std::span<const int64_t> numbers,
              const AnswerBatchOptions& options) const;
  /// How many values one of them has.
  int64_t places_of(int64_t number) const {
    return places_[static_cast<size_t>(number) + 1] - places_[static_cast<size_t>(number)];
  }
  std::vector<float> values() const { return {values_.begin(), values_.end()}; }
  /// What models learn from that see the answers. The same object for as long as this lives.
  const std::shared_ptr<PpoTargets>& targets() const { return targets_; }
  /// TRL's metrics of what the answers are worth.
  const NamedNumbers& metrics() const { return metrics_; }
  ValueModel& model() const { return model_; }

 private:
  PpoOptions options_;
  int64_t most_tokens_;
  ValueModel& model_;
  std::vector<int64_t> places_;  // the number of the first place of each answer; one more at the end
  std::vector<double> values_;   // the value of each place
  std::shared_ptr<PpoTargets> targets_ = std::make_shared<PpoTargets>();
  NamedNumbers metrics_;
};

}  // namespace nought
