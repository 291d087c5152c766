// AlignmentPlan: the method by which a run learns from preferences and labels, with every value resolved.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nought/base/visit.h"
#include "nought/nn/policy_loss.h"
#include "nought/nn/ppo_loss.h"
#include "nought/nn/preference_loss.h"
#include "nought/nn/score_loss.h"
#include "nought/rewards/reward_config.h"

namespace nought {

/// What a run learns from: sft is the likelihood of all tokens that are trained.
enum class AlignmentMethod : uint8_t { sft, reward, dpo, orpo, cpo, kto, grpo, rloo, ppo, gkd, classify };

template <>
struct EnumNames<AlignmentMethod> {
  static constexpr std::array<std::pair<AlignmentMethod, std::string_view>, 11> value{{
      {AlignmentMethod::sft, "sft"},
      {AlignmentMethod::reward, "reward"},
      {AlignmentMethod::dpo, "dpo"},
      {AlignmentMethod::orpo, "orpo"},
      {AlignmentMethod::cpo, "cpo"},
      {AlignmentMethod::kto, "kto"},
      {AlignmentMethod::grpo, "grpo"},
      {AlignmentMethod::rloo, "rloo"},
      {AlignmentMethod::ppo, "ppo"},
      {AlignmentMethod::gkd, "gkd"},
      {AlignmentMethod::classify, "classify"},
  }};
};

/// Which tokens answers are drawn from, beside the temperature: SamplingParameters. What is learned of them are
/// probabilities among all tokens, as TRL has it.
struct AnswerSampling {
  int64_t top_k = 0;
  double top_p = 1, min_p = 0, repetition_penalty = 1;
};

/// How a model learns from a teacher: GKD (arXiv 2306.13649), with the names and defaults of TRL's GKDConfig.
struct Distillation {
  double own_share = 0.5;  // lmbda: of steps whose answers the model writes itself
  double beta = 0.5;       // between KL(teacher || model), 0, and KL(model || teacher), 1
};

/// How a policy and a value model learn from rewards: PPO (arXiv 1707.06347), with the names and defaults of TRL's
/// PPOConfig.
struct PpoPlan {
  PpoOptions options = {};
  int64_t mini_batches = 1;                   // the steps of an epoch over the answers that are written at once
  std::string value_model = {};               // the folder that the value model begins with; "": the model's own,
  std::string value_place = {};               // and which key has named it, for messages
  std::optional<int32_t> stop_token_id = {};  // ends answers, beside those that end a text
};

struct AlignmentPlan {
  AlignmentMethod method = AlignmentMethod::sft;
  PairLossOptions loss = {};
  LabelLossOptions label_loss = {};    // the loss of kto
  PolicyLossOptions policy_loss = {};  // the loss of grpo and rloo; of ppo and gkd, how answers are written
  RewardScale reward_scale = RewardScale::group;
  std::optional<LeaveOneOutOptions> leave_one_out = {};  // rloo: what is made of rewards
  AnswerSampling sampling = {};                          // how answers are drawn, for methods of rewards
  int64_t generations = 8;                               // the same: the answers to a prompt
  int64_t generations_to_validate = 8;                   // the same: the answers to a prompt that is held out
  int64_t iterations = 1;                                // the same: the steps that learn from each answer
  int64_t steps_per_generation = 0;         // the same: micro-batches that answers are written for; 0: those of a step
  double top_entropy = 1;                   // the same: advantages count for this share of tokens, the least sure
  bool masks_truncated = false;             // the same: nothing is learned from answers without an end
  std::vector<RewardConfig> rewards = {};   // the same: what judges them,
  std::vector<double> reward_weights = {};  // and what each counts
  double likelihood = 0;                    // what the mean cross-entropy of the chosen answers' tokens counts beside
  bool likelihood_of_prompts = false;       // that of their prompts' tokens too
  double center = 0;                        // reward: what the square of the sum of two scores counts
  int64_t labels = 0;                       // classify: the scores of a text; 0: as many as the model has
  std::optional<ProblemType> problem = {};  // what they mean, if it is said
  bool length_given = false;                // max_length was, and does not follow from the model
  bool without_labels = false;              // texts are only scored, and need none
  std::optional<double> ld_alpha = {};      // what tokens beyond the shorter answer of a pair count
  std::optional<PpoPlan> ppo = {};          // ppo
  std::optional<Distillation> distillation = {};  // gkd
  std::string teacher_model = {};                 // the same: the folder of the teacher
  std::string ref_model = {};  // the folder of the reference model; "": the model that the run begins with

  /// "dpo, sigmoid x 1, beta 0.1": what a resumed run should not have changed.
  std::string describe() const;
  /// Whether it learns from answers with labels.
  bool of_labels() const { return method == AlignmentMethod::kto; }
  /// Whether what model and reference say of other answers is asked beside.
  bool asks_kl() const { return of_labels() && !label_loss.apo_zero; }
  /// The steps that answers are written for at once, each of which has a share of them.
  int64_t steps_of_answers(int64_t accumulation) const {
    if (ppo) return ppo->mini_batches;
    return steps_per_generation == 0 ? 1 : steps_per_generation / accumulation;
  }
  /// Whether several steps learn from what was written before the first of them.
  bool learns_again(int64_t accumulation) const { return steps_of_answers(accumulation) * iterations > 1; }
  /// Whether it learns from rewards of answers that the model writes itself.
  bool of_rewards() const {
    return method == AlignmentMethod::grpo || method == AlignmentMethod::rloo || method == AlignmentMethod::ppo;
  }
  /// Whether some answers are written by the model itself.
  bool writes_answers() const { return of_rewards() || (distillation && distillation->own_share > 0); }
  /// The key that says how many tokens such an answer has at most.
  std::string answer_length_key() const {
    return method == AlignmentMethod::ppo   ? "alignment.response_length"
           : method == AlignmentMethod::gkd ? "alignment.max_new_tokens"
                                            : "alignment.max_completion_length";
  }
  /// Whether what the reference says is asked of answers that are new in each step.
  bool keeps_reference() const { return of_rewards() && has_reference(); }
  /// Whether rewards are less where an answer's probability has left that of the reference.
  bool penalises_divergence() const { return leave_one_out && leave_one_out->beta > 0; }
  /// Whether a classifier's head scores whole texts.
  bool of_scores() const { return method == AlignmentMethod::reward || method == AlignmentMethod::classify; }
  /// Answers of a sample that are trained.
  int64_t answers_per_sample() const {
    return of_labels() || of_rewards() || method == AlignmentMethod::classify || method == AlignmentMethod::gkd ? 1 : 2;
  }
  /// Whether it learns from answers that were judged, as pairs or one by one.
  bool of_answers() const { return method != AlignmentMethod::sft; }
  /// Whether answers are scored by the mean of their tokens' log-probabilities, not by the sum.
  bool scores_means() const {
    if (method == AlignmentMethod::dpo) return false;
    for (const auto& [type, weight] : loss.terms)
      if (type == PairLossType::odds_ratio || type == PairLossType::simpo || type == PairLossType::ipo) return true;
    return false;
  }
  /// Whether a reference model is asked.
  bool has_reference() const {
    if (ppo) return ppo->options.kl_coef > 0;
    if (of_rewards()) return policy_loss.beta > 0 || penalises_divergence();
    bool asks = of_labels();
    for (const auto& [type, weight] : loss.terms) asks |= type != PairLossType::sft;
    return (method == AlignmentMethod::dpo || of_labels()) && asks;
  }
};

}  // namespace nought
