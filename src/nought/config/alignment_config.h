// AlignmentConfig: the section "alignment" of RUN.json as it was written. Names, meanings and defaults are those of
// TRL's configs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nought/base/visit.h"
#include "nought/config/alignment_plan.h"
#include "nought/rewards/reward_config.h"

namespace nought {

struct AlignmentConfig {
  Setting<AlignmentMethod> method{AlignmentMethod::sft};
  Json loss_type;
  Setting<std::vector<double>> loss_weights;
  Setting<double> beta;
  Setting<double> label_smoothing{0.0};
  Setting<double> ld_alpha;
  Setting<Divergence> f_divergence_type{Divergence::reverse_kl};
  Setting<double> f_alpha_divergence_coef{0.5};
  Setting<double> discopop_tau{0.05};
  Setting<double> cpo_alpha{1.0};
  Setting<double> simpo_gamma{0.5};
  Setting<double> desirable_weight{1.0};
  Setting<double> undesirable_weight{1.0};
  Setting<double> epsilon{0.2};
  Setting<double> epsilon_high;
  Setting<double> delta;
  Setting<bool> use_bias_correction_kl{true};
  Setting<ImportanceLevel> importance_sampling_level{ImportanceLevel::token};
  Setting<RewardScale> scale_rewards{RewardScale::group};
  Setting<double> temperature{1.0};
  Setting<int64_t> top_k{0};
  Setting<double> top_p{1.0};
  Setting<double> min_p;
  Setting<double> repetition_penalty{1.0};
  Setting<int64_t> num_generations{8};
  Setting<int64_t> num_generations_eval;
  Setting<int64_t> num_iterations{1};
  Setting<int64_t> steps_per_generation;
  Setting<int64_t> max_completion_length{512};
  Setting<double> top_entropy_quantile{1.0};
  Setting<bool> mask_truncated_completions{false};
  Setting<std::vector<RewardConfig>> reward_funcs;
  Setting<std::vector<double>> reward_weights;
  Setting<bool> normalize_advantages{false};
  Setting<std::vector<double>> reward_clip_range;
  Setting<int64_t> response_length{53};
  Setting<std::string> stop_token;
  Setting<int64_t> stop_token_id;
  Setting<double> missing_eos_penalty;
  Setting<int64_t> num_ppo_epochs{4};
  Setting<int64_t> num_mini_batches{1};
  Setting<bool> whiten_rewards{false};
  Setting<double> kl_coef{0.05};
  Setting<KlEstimator> kl_estimator{KlEstimator::k1};
  Setting<double> cliprange{0.2};
  Setting<double> cliprange_value{0.2};
  Setting<double> vf_coef{0.1};
  Setting<double> gamma{1.0};
  Setting<double> lam{0.95};
  Setting<std::string> reward_model;
  Setting<std::string> value_model;
  Setting<double> center_rewards_coefficient{0.0};
  Setting<int64_t> num_labels;
  Setting<ProblemType> problem_type;
  Setting<int64_t> max_length{1024};
  Setting<std::string> teacher_model;
  Setting<double> lmbda{0.5};
  Setting<int64_t> max_new_tokens{128};
  Setting<std::string> ref_model;
  Setting<bool> precompute_ref_log_probs{false};

  template <class V>
  void visit(V& v) {
    v("method", method,
      "what is learned from: sft (the likelihood of texts and conversations), pairs of a chosen and a rejected answer "
      "(dpo, orpo, cpo; reward: a model that scores them), answers with labels (kto), texts with labels (classify: "
      "a classifier of transformers), answers that the model writes itself (grpo, rloo, ppo), or what a teacher says "
      "of answers (gkd)");
    v("loss_type", loss_type,
      "dpo: sigmoid (default), hinge, ipo, exo_pair, nca_pair, robust, bco_pair, sppo_hard, apo_zero, apo_down, "
      "discopop, sft or sigmoid_norm, or a list of them, which are added; cpo: sigmoid, hinge, ipo or simpo; kto: kto "
      "or apo_zero_unpaired; grpo: dapo (default), grpo, bnpo, dr_grpo or cispo");
    v("loss_weights", loss_weights, "what each loss of the list counts; default: 1");
    v("beta", beta,
      "how much a departure from the reference model counts (default: 0.1; grpo: 0; rloo: 0.05, taken off rewards); of "
      "ipo, the strength of its regularizer; gkd: between KL(teacher || model), 0, and KL(model || teacher), 1 "
      "(default: 0.5)");
    v("label_smoothing", label_smoothing,
      "the share of pairs that are taken to be the wrong way round: robust, exo_pair, and cpo's sigmoid and simpo");
    v("ld_alpha", ld_alpha, "dpo: what tokens beyond the shorter answer of a pair count; not given = 1");
    v("f_divergence_type", f_divergence_type, "dpo: which divergence from the reference model counts");
    v("f_alpha_divergence_coef", f_alpha_divergence_coef, "the order of alpha_divergence");
    v("discopop_tau", discopop_tau, "the temperature of discopop");
    v("cpo_alpha", cpo_alpha, "cpo: what the mean cross-entropy of chosen answers counts beside");
    v("simpo_gamma", simpo_gamma, "cpo with simpo: the margin between the answers");
    v("desirable_weight", desirable_weight, "kto: what wanted answers count");
    v("undesirable_weight", undesirable_weight, "kto: what unwanted answers count");
    v("epsilon", epsilon,
      "grpo, rloo: how far ratios to the policy that wrote the answers may go down before they are clipped");
    v("epsilon_high", epsilon_high, "grpo, rloo: how far they may go up; default: epsilon; of cispo, the ratio itself");
    v("delta", delta, "grpo: what the ratio that is not clipped is capped at; not given: nothing");
    v("use_bias_correction_kl", use_bias_correction_kl, "grpo: the divergence from the reference is times the ratio");
    v("importance_sampling_level", importance_sampling_level, "grpo: token, or sequence (GSPO): whose ratio it is");
    v("scale_rewards", scale_rewards,
      "grpo: what advantages are divided by: the standard deviation of their group, of the batch, or none");
    v("temperature", temperature,
      "grpo, rloo, ppo, gkd: what logits are divided by, when answers are sampled and when they are learned (ppo: 0.7, "
      "gkd: 0.9 if it is not given)");
    v("top_k", top_k, "grpo, rloo, ppo: answers are of the k likeliest tokens at each place alone; 0: of all");
    v("top_p", top_p,
      "grpo, rloo, ppo: of the fewest likeliest tokens whose probabilities sum to p or more; 1: of all");
    v("min_p", min_p,
      "grpo, rloo, ppo: of tokens that are at least p times as likely as the likeliest; not given: of all");
    v("repetition_penalty", repetition_penalty,
      "grpo, rloo, ppo: the logits of tokens that were in prompt or answer before are divided by it, negative ones "
      "multiplied");
    v("num_generations", num_generations,
      "grpo, rloo: the answers to a prompt, which are compared with each other; rloo: 2 if it is not given");
    v("num_generations_eval", num_generations_eval,
      "grpo, rloo: the answers to a prompt that is held out, when rewards are validated; default: num_generations");
    v("num_iterations", num_iterations, "grpo, rloo: how often the same answers are learned from");
    v("steps_per_generation", steps_per_generation,
      "grpo, rloo: the micro-batches that answers are written for at once, a multiple of gradient_accumulation_steps; "
      "default: those of a step");
    v("max_completion_length", max_completion_length, "grpo, rloo: the most tokens of an answer");
    v("top_entropy_quantile", top_entropy_quantile,
      "grpo: advantages count for the share of the step's tokens where the model was least sure alone; 1: for all");
    v("mask_truncated_completions", mask_truncated_completions,
      "grpo, rloo: nothing is learned from answers that max_completion_length has cut; their rewards count in the "
      "advantages of others");
    v("reward_funcs", reward_funcs,
      "grpo, rloo, ppo: what judges answers: a list of {type, name, ...}, whose sum is the reward");
    v("reward_weights", reward_weights, "grpo, rloo, ppo: what each of them counts; default: 1");
    v("normalize_advantages", normalize_advantages,
      "rloo: advantages get mean 0 and deviation 1 over the answers that are written at once");
    v("reward_clip_range", reward_clip_range, "rloo: [least, most] of the reward of an answer; not given: any");
    v("response_length", response_length, "ppo: the most tokens of an answer");
    v("stop_token", stop_token, "ppo: \"eos\", which ends answers whether this is given or not");
    v("stop_token_id", stop_token_id, "ppo: a token that ends answers, too");
    v("missing_eos_penalty", missing_eos_penalty,
      "ppo: what is taken off the score of an answer that response_length has cut; not given: nothing");
    v("num_ppo_epochs", num_ppo_epochs, "ppo: how often the same answers are learned from");
    v("num_mini_batches", num_mini_batches,
      "ppo: the steps in which all answers that are written at once are learned from, each from another part");
    v("whiten_rewards", whiten_rewards, "ppo: the rewards of all tokens are brought to variance 1");
    v("kl_coef", kl_coef, "ppo: what a departure from the reference model takes off the reward of each token");
    v("kl_estimator", kl_estimator, "ppo: how it is estimated: k1, log-ratio, or k3, which has less variance");
    v("cliprange", cliprange,
      "ppo: how far ratios to the policy that wrote the answers go from 1 before they are clipped");
    v("cliprange_value", cliprange_value, "ppo: how far values go from the old ones before they are clipped");
    v("vf_coef", vf_coef, "ppo: what the loss of the value model counts beside that of the policy");
    v("gamma", gamma, "ppo: what a reward counts one token later");
    v("lam", lam, "ppo: lambda of generalized advantage estimation");
    v("reward_model", reward_model,
      "ppo: the folder of an XForSequenceClassification with one label that judges answers; short for an entry of "
      "reward_funcs");
    v("value_model", value_model,
      "ppo: the folder that the value model begins with, a classifier of one label or a language model, which gets a "
      "new head; default: that of the reward model, else the model itself");
    v("center_rewards_coefficient", center_rewards_coefficient,
      "reward: what the square of the sum of both scores counts, which keeps their mean at 0");
    v("num_labels", num_labels, "classify: the scores of a text, where the model has no such head yet");
    v("problem_type", problem_type,
      "classify: single_label_classification, regression or multi_label_classification; default: that of the model, "
      "else regression of one label and single_label_classification of several");
    v("max_length", max_length, "tokens of a prompt with an answer: what is longer is cut at its end");
    v("teacher_model", teacher_model, "gkd: the folder of the teacher, whose vocabulary is that of the model");
    v("lmbda", lmbda, "gkd: the share of steps whose answers the model writes itself");
    v("max_new_tokens", max_new_tokens, "gkd: the most tokens of an answer that the model writes");
    v("ref_model", ref_model,
      "dpo, kto, ppo, grpo and rloo with a beta: the folder of the reference model, of the same shape; default: the "
      "model that the run begins with");
    v("precompute_ref_log_probs", precompute_ref_log_probs,
      "has no effect: what the reference model says of the answers is always computed once, before the first step");
  }
};

}  // namespace nought
