// Mixtures of experts: the choice of experts, the grouping of tokens by expert, and operations on rows of tokens.
#pragma once

#include "nought/kernels/operation.h"

namespace nought {

/// What the scores of experts are.
enum class RouterScores : uint8_t {
  softmax,         // The softmax of the logits of all experts.
  sigmoid,         // The sigmoid of each logit.
  chosen_softmax,  // The logits; the weights are their softmax over the chosen experts.
};
std::string_view name_of(RouterScores scores);

/// How good a group of experts is.
enum class GroupScore : uint8_t {
  best,      // As good as its best expert.
  best_two,  // As good as the sum of its two best experts.
};
std::string_view name_of(GroupScore score);

/// How a token chooses top_k of its experts, and what weights they get. Of equal scores, the lower index is chosen.
struct RouterRule {
  int64_t top_k = 2;
  RouterScores scores = RouterScores::softmax;
  /// With num_groups > 1, the experts outside of the kept_groups best groups count as 0 in the choice (arXiv
  /// 2405.04434).
  int64_t num_groups = 1, kept_groups = 1;
  GroupScore group_score = GroupScore::best;
  bool normalise = false;  // Weights are divided by their sum,
  double scaling = 1;      // and multiplied by this at last.

  bool operator==(const RouterRule&) const = default;

  template <class V>
  void visit(V& v) const {
    v("top_k", top_k);
    v("scores", scores);
    v("num_groups", num_groups);
    v("kept_groups", kept_groups);
    v("group_score", group_score);
    v("normalise", normalise);
    v("scaling", scaling);
  }
};

/// Chooses the experts of each token and their weights, best first. logits: [tokens, experts] f32 or f64; choice_bias:
/// [experts] float, optional, added to the scores for the choice alone (arXiv 2408.15664); experts: [tokens, top_k]
/// i32; weights: [tokens, top_k], dtype of logits; probability_sums: [experts] f64, the sum over tokens of
/// softmax(logits).
struct Route {
  RouterRule rule;
  Tensor logits, choice_bias, experts, weights, probability_sums;

  template <class V>
  void visit(V& v) const {
    v("logits", logits, kReads);
    v("choice_bias", choice_bias, kReads.if_defined());
    v("experts", experts, kWrites);
    v("weights", weights, kWrites);
    v("probability_sums", probability_sums, kWrites);
    v("rule", rule);
  }
};

/// d_logits from d_weights; the choice has no gradient. d_probabilities: [experts], dtype of logits, optional: the
/// gradient of softmax(logits), the same for every token, as a function of the probability_sums has.
struct RouteBackward {
  RouterRule rule;
  Tensor logits, experts, d_weights, d_logits;
  Tensor d_probabilities = {};

  template <class V>
  void visit(V& v) const {
    v("logits", logits, kReads);
    v("experts", experts, kReads);
    v("d_weights", d_weights, kReads);
    v("d_probabilities", d_probabilities, kReads.if_defined());
    v("d_logits", d_logits, kWrites);
    v("rule", rule);
  }
};

/// The loss that balances experts (arXiv 2101.03961, as Hugging Face's Mixtral computes it). sums: [2E + 2] f64, over
/// all tokens of all layers and ranks: the choices c of each expert, the probabilities p of each, the tokens n, and the
/// weight w of all batches in the mean loss. balance = E * (sum over experts of c * p) / n^2, which is top_k when
/// balanced; 0 without tokens. loss: [1] f64, weight * coefficient * balance. gradient: [E] f64, of w * coefficient *
/// gradient_scale * balance by the probability of each expert for any one token; the choices are constants.
struct BalanceLoss {
  Tensor sums, loss, gradient;
  double weight = 1;  // of this rank's batch
  double coefficient = 1, gradient_scale = 1;

  template <class V>
  void visit(V& v) const {
    v("sums", sums, kReads);
    v("loss", loss, kWrites);
    v("gradient", gradient, kWrites);
    v("weight", weight);
    v("coefficient", coefficient);
    v("gradient_scale", gradient_scale);
  }
};

/// Gives every choice of an expert a row, such that the rows of an expert lie side by side: sorted by expert, then
/// place among the token's choices, then token. An expert takes at most `capacity` choices (0: all); those that come
/// later in this order get no row. Each expert's rows end with padding (kernels/grouping.h says how much, and where
/// each block begins). experts: [tokens, top_k] i32 in [0, E); counts: [E] i32, all choices of each expert; row:
/// [tokens, top_k] i32, -1 for a choice without one; token, pair: [n] i32, for each row its token and its place in
/// [tokens * top_k], -1 for padding and from the last block's end on. n is at least grouping.h's most_rows().
struct GroupByExpert {
  Tensor experts, counts, row, token, pair;
  int64_t capacity = 0;

  template <class V>
  void visit(V& v) const {
    v("experts", experts, kReads);
    v("counts", counts, kWrites);
    v("row", row, kWrites);
    v("token", token, kWrites);
    v("pair", pair, kWrites);
    v("capacity", capacity);
  }
  /// The host reads the counts, to know the blocks. Every expert gets as many choices as any other.
  void dry_run() const;
};

/// out[i] = x[index[i]], or zeros where index[i] is -1. x: [n, H] float, index: [rows] i32, out: [rows, H].
struct GatherRows {
  Tensor x, index, out;

  template <class V>
  void visit(V& v) const {
    v("x", x, kReads.of_rows(index.numel()));
    v("index", index, kReads);
    v("out", out, kWrites);
  }
};

/// out[t] [+]= sum over s of weights[t, s] * x[index[t, s]], added in order of s in fp32; index -1 gives nothing.
/// x: [n, H] float, index: [tokens, k] i32, out: [tokens, H]; weights: [tokens, k] f32 (f64 for f64), ones if
/// undefined.
struct CombineRows {
  Tensor x, index, out, weights = {};
  bool accumulate = false;

  template <class V>
  void visit(V& v) const {
    v("x", x, kReads.of_rows(index.numel()));
    v("index", index, kReads);
    v("weights", weights, kReads.if_defined());
    v("out", out, kWrites.adding(accumulate));
    v("accumulate", accumulate);
  }
};

/// y[i] = factors[i] * x[i]. x, y: [rows, n] float, y may be x; factors: [rows] f32 (f64 for f64).
struct ScaleRows {
  Tensor x, factors, y;

  template <class V>
  void visit(V& v) const {
    v("x", x, kReads);
    v("factors", factors, kReads);
    v("y", y, kWrites);
  }
};

/// out[i] [+]= a[i] . b[i]. a, b: [rows, n] float; out: [rows] f32 (f64 for f64). factors: [n], dtype of a, optional:
/// the sum of a * b * (factors + factor_offset).
struct DotRows {
  Tensor a, b, out;
  bool accumulate = false;
  Tensor factors = {};
  double factor_offset = 0;  // with factors

  template <class V>
  void visit(V& v) const {
    v("a", a, kReads);
    v("b", b, kReads);
    v("factors", factors, kReads.if_defined());
    v("out", out, kWrites.adding(accumulate));
    v("accumulate", accumulate);
    v("factor_offset", factor_offset);
  }
};

}  // namespace nought
