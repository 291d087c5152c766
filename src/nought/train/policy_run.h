// PolicyRun: what a run that learns from rewards of its own answers (GRPO, RLOO, PPO) has beside others: prompts, the
// answers of each step, what they are worth, and the numbers that tell how they become better.
//
// Design goals: the answers of a step are a function of the weights and of (seed, step, prompt, member), on any layout,
// so that a resumed run needs to know its step only, and the answers alone if several steps share them; they are
// written by the weights that are trained, and no second copy is made but for a reference, where a loss asks what it
// says. Non-goals: steps that begin before their answers are written.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "nought/config/run_plan.h"
#include "nought/data/answer_data.h"
#include "nought/data/step_source.h"
#include "nought/nn/policy_objective.h"
#include "nought/nn/ppo_objective.h"
#include "nought/train/policy_answers.h"
#include "nought/train/run_data.h"

namespace nought {

/// In the output folder: a line of JSON for each answer of rank 0's steps, with its rewards.
inline constexpr const char* kCompletionsFile = "completions.jsonl";

/// In a checkpoint between steps that share answers: these, what they are worth, and what the policy that wrote them
/// said of them.
inline constexpr const char* kAnswersFile = "answers.safetensors";

/// Which prompts a step has, `generations` answers to each.
class PromptOrder {
 public:
  /// ConfigError if there are fewer prompts than a step takes.
  PromptOrder(const AnswerData& prompts, int64_t prompts_per_step, uint64_t seed);
  std::vector<int64_t> of_step(int64_t step) const { return order_.of_step(step, per_step_); }
  int64_t steps_for(double epochs) const { return steps_for_epochs(epochs, order_.size(), per_step_); }

 private:
  SampleOrder order_;
  int64_t per_step_;
};

/// The most tokens of a prompt with an answer, of those that are held out, too.
int64_t longest_answer(const RunData& data, const AlignmentPlan& plan);

class PolicyRun final : public StepSource {
 public:
  /// Makes the steps of the decoder learn from rewards. reference: null unless the loss asks it. values: null unless a
  /// value model learns beside. stop_ids: the tokens that end an answer. All must outlive this object. ConfigError
  /// names a prompt that a reward can not judge answers to.
  PolicyRun(const RunPlan& plan, const RunData& data, const BatchLayout& layout, ShardedModel& model, Decoder& decoder,
            Engine& engine, ReferenceModel* reference, ValueModel* values, const AnswerJudges& judges,
            const Tokenizer& tokenizer, std::vector<int32_t> stop_ids);

  /// Before step number `step`, counted from 0: writes its answers and judges them, unless a step before has.
  /// Collective.
  void begin_step(int64_t step);
  /// The step of the value model, if there is one, behind that of the policy, whose loss it adds its own to.
  /// Collective.
  void learn_values(double lr, StepResult& result);
  /// Writes what a run needs that goes on with step number `step`: see kAnswersFile. On rank 0.
  void save(const std::filesystem::path& folder, int64_t step) const;
  /// The run goes on with step number `step` from a checkpoint. Returns a line for the user, or "". Collective.
  std::string resume(const std::filesystem::path& checkpoint, int64_t step);
  /// TRL's metrics of the answers of that step, which has been made. Collective.
  NamedNumbers metrics() const;
  /// Writes and judges answers to the prompts that are held out, the same number for each, with the same seeds each
  /// time: the loss that they would have, and their metrics. Collective.
  Evaluation validate();

  /// The next are of the step that began last.
  std::vector<Batch> batches(int64_t step, Memory& memory) const override;
  double weight_of_step(int64_t step) const override;
  double weight_of_step(int64_t step, int first, int ranks) const override;
  /// The most that a step may have, if it is another one.
  int64_t tokens_of_step(int64_t step) const override;
  int64_t steps_for(double epochs) const override { return order_.steps_for(epochs) * plan_.alignment.iterations; }
  /// The answers of an epoch.
  int64_t num_samples() const override { return prompts_->num_pairs() * generations(); }
  int64_t num_tokens() const override { return prompts_->num_tokens(); }
  uint64_t fingerprint() const override { return prompts_->fingerprint(); }

 private:
  int64_t generations() const { return plan_.alignment.generations; }
  /// The steps that answers are written for at once, each of which learns from a share of them; all do so in turn,
  /// num_iterations times.
  int64_t shares() const { return plan_.alignment.steps_of_answers(layout_.accumulation); }
  int64_t steps_of_answers() const { return shares() * plan_.alignment.iterations; }
  int64_t share_of(int64_t step) const { return step % shares(); }
  /// The numbers of its answers.
  Interval answers_of_share(int64_t share) const {
    return {share * layout_.train_batch(), (share + 1) * layout_.train_batch()};
  }
  /// Writes the answers of the steps from `first` on, and judges them.
  void write_answers_of(int64_t first);
  /// How far losses are from the policy that wrote, and from the reference. Collective.
  NamedNumbers distances(const PolicyAnswers& answers, int64_t share, const PolicyNumbers& numbers) const;
  std::shared_ptr<const Objective> make_objective(std::shared_ptr<PolicyNumbers> numbers) const {
    return std::make_shared<PolicyObjective>(plan_.alignment.policy_loss, std::move(numbers), least_entropy_);
  }
  /// The loss of answers that a value model has valued, and that of the value model; they add to the numbers.
  std::shared_ptr<const Objective> make_objective(const PolicyAnswers& answers,
                                                  std::shared_ptr<PpoNumbers> numbers) const;
  std::shared_ptr<const Objective> make_value_objective(const PolicyAnswers& answers,
                                                        std::shared_ptr<PpoNumbers> numbers) const;
  /// The loss of answers that are held out. Adds their numbers to the metrics.
  double loss_of_validation(Evaluation& result);
  double ppo_loss_of_validation(Evaluation& result);
  /// TRL's metrics of a step of two models. Collective.
  NamedNumbers ppo_metrics(const PpoNumbers& numbers) const;
  /// What is learned of the answers that were written last, of which this is a step.
  int64_t epoch_of(int64_t step) const { return step % steps_of_answers() / shares(); }
  void require_step(int64_t step) const;

  const RunPlan& plan_;
  std::shared_ptr<const AnswerData> prompts_;
  BatchLayout layout_;
  ShardedModel& model_;
  Decoder& decoder_;
  Engine& engine_;
  const std::vector<int32_t> stop_ids_;
  PromptOrder order_;
  std::shared_ptr<const AnswerData> held_out_;  // null: nobody validates
  PolicyAnswers answers_;
  std::unique_ptr<PolicyAnswers> validation_;
  bool has_reference_ = false;
  ValueModel* values_;  // null unless one learns beside
  std::shared_ptr<PpoNumbers> ppo_numbers_ = std::make_shared<PpoNumbers>();
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  int64_t written_ = 0;                    // answers, since then
  int64_t step_ = -1, first_ = -1;         // first_: of the steps that answers_ are for
  std::shared_ptr<double> least_entropy_;  // null: advantages count for all tokens
  std::shared_ptr<PolicyNumbers> numbers_ = std::make_shared<PolicyNumbers>();
  std::shared_ptr<const Objective> objective_;
};

}  // namespace nought
