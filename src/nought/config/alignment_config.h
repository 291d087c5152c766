// AlignmentConfig: the section "alignment" of RUN.json as it was written. Names, meanings and defaults are those of
// TRL's configs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nought/base/visit.h"
#include "nought/config/alignment_plan.h"

namespace nought {

struct AlignmentConfig {
  Setting<AlignmentMethod> method{AlignmentMethod::sft};
  Json loss_type;
  Setting<std::vector<double>> loss_weights;
  Setting<double> beta{0.1};
  Setting<double> label_smoothing{0.0};
  Setting<double> ld_alpha;
  Setting<Divergence> f_divergence_type{Divergence::reverse_kl};
  Setting<double> f_alpha_divergence_coef{0.5};
  Setting<double> discopop_tau{0.05};
  Setting<double> cpo_alpha{1.0};
  Setting<double> simpo_gamma{0.5};
  Setting<double> desirable_weight{1.0};
  Setting<double> undesirable_weight{1.0};
  Setting<int64_t> max_length{1024};
  Setting<std::string> ref_model;
  Setting<bool> precompute_ref_log_probs{false};

  template <class V>
  void visit(V& v) {
    v("method", method,
      "what is learned from: sft (the likelihood of texts and conversations), pairs of a chosen and a rejected answer "
      "(dpo, orpo, cpo), or answers with labels (kto); the others are refused");
    v("loss_type", loss_type,
      "dpo: sigmoid (default), hinge, ipo, exo_pair, nca_pair, robust, bco_pair, sppo_hard, apo_zero, apo_down, "
      "discopop, sft or sigmoid_norm, or a list of them, which are added; cpo: sigmoid, hinge, ipo or simpo; kto: kto "
      "or apo_zero_unpaired");
    v("loss_weights", loss_weights, "what each loss of the list counts; default: 1");
    v("beta", beta, "how much a departure from the reference model counts; of ipo, the strength of its regularizer");
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
    v("max_length", max_length, "tokens of a prompt with an answer: what is longer is cut at its end");
    v("ref_model", ref_model,
      "dpo, kto: the folder of the reference model, of the same shape; default: the model that the run begins with");
    v("precompute_ref_log_probs", precompute_ref_log_probs,
      "has no effect: what the reference model says of the answers is always computed once, before the first step");
  }
};

}  // namespace nought
