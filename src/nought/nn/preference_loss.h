// Losses of pairs of answers, of which one was chosen: functions of the log-probabilities of both (DPO and its kin).
//
// Design goals: plain numbers, so that a loss and its derivatives are tested alone; names, defaults and formulas are
// those of TRL 1.16. Non-goals: losses that sort the pairs of a batch (aot), whose value would depend on the layout.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "nought/base/visit.h"

namespace nought {

/// TRL's names. simpo and cpo have no reference model; odds_ratio is what ORPO adds to the likelihood.
enum class PairLossType : uint8_t {
  sigmoid,
  hinge,
  ipo,
  exo_pair,
  nca_pair,
  robust,
  bco_pair,
  sppo_hard,
  apo_zero,
  apo_down,
  discopop,
  sft,
  sigmoid_norm,
  smoothed,
  simpo,
  odds_ratio
};

template <>
struct EnumNames<PairLossType> {
  static constexpr std::array<std::pair<PairLossType, std::string_view>, 16> value{{
      {PairLossType::sigmoid, "sigmoid"},
      {PairLossType::hinge, "hinge"},
      {PairLossType::ipo, "ipo"},
      {PairLossType::exo_pair, "exo_pair"},
      {PairLossType::nca_pair, "nca_pair"},
      {PairLossType::robust, "robust"},
      {PairLossType::bco_pair, "bco_pair"},
      {PairLossType::sppo_hard, "sppo_hard"},
      {PairLossType::apo_zero, "apo_zero"},
      {PairLossType::apo_down, "apo_down"},
      {PairLossType::discopop, "discopop"},
      {PairLossType::sft, "sft"},
      {PairLossType::sigmoid_norm, "sigmoid_norm"},
      {PairLossType::smoothed, "smoothed"},
      {PairLossType::simpo, "simpo"},
      {PairLossType::odds_ratio, "odds_ratio"},
  }};
};

/// How the ratio of policy and reference becomes a score (arXiv 2309.16240).
enum class Divergence : uint8_t { reverse_kl, forward_kl, js_divergence, alpha_divergence };

template <>
struct EnumNames<Divergence> {
  static constexpr std::array<std::pair<Divergence, std::string_view>, 4> value{
      {{Divergence::reverse_kl, "reverse_kl"},
       {Divergence::forward_kl, "forward_kl"},
       {Divergence::js_divergence, "js_divergence"},
       {Divergence::alpha_divergence, "alpha_divergence"}}};
};

struct PairLossOptions {
  /// The loss is the sum of these, each times its weight.
  std::vector<std::pair<PairLossType, double>> terms = {{PairLossType::sigmoid, 1.0}};
  double beta = 0.1;
  double label_smoothing = 0;
  Divergence divergence = Divergence::reverse_kl;
  double alpha = 0.5;  // of alpha_divergence
  double discopop_tau = 0.05;
  double simpo_gamma = 0.5;
};

/// One answer: the log-probability of its tokens, a sum, under the model and under the reference, and their number.
struct AnswerSums {
  double policy = 0, reference = 0, tokens = 1;

  double ratio() const { return policy - reference; }
};

/// The loss of a pair, and its derivatives by the two sums under the model.
struct PairLoss {
  double loss = 0, d_chosen = 0, d_rejected = 0;
};

double log_sigmoid(double x);
/// log(p / (1 - p)) of a probability by its logarithm: ORPO's mean log-probability of an answer's tokens.
double log_odds(double log_probability);

/// The loss without its term `sft`, which is a mean over tokens and no function of the sums.
PairLoss pair_loss(const PairLossOptions& options, const AnswerSums& chosen, const AnswerSums& rejected);

/// KTO (arXiv 2402.01306): answers that are judged one by one. apo_zero: its loss apo_zero_unpaired, which has no kl.
struct LabelLossOptions {
  double beta = 0.1, desirable_weight = 1, undesirable_weight = 1;
  bool apo_zero = false;
};

/// The loss of an answer, and its derivative by its log-probability under the model.
struct LabelLoss {
  double loss = 0, slope = 0;
};

/// KTO's kl: the mean log-ratio of model and reference of answers to other prompts, at least 0.
double mismatch_kl(std::span<const double> policy, std::span<const double> reference);

/// ratio: of the log-probabilities under the model and the reference. kl: how far both are apart, which no gradient
/// changes.
LabelLoss label_loss(const LabelLossOptions& options, bool desirable, double ratio, double kl);

}  // namespace nought
