// The loss of a token that a policy has written itself, by its advantage: GRPO (arXiv 2402.03300) and its kin.
//
// Design goals: plain numbers, so that a loss and its derivatives are tested alone; names, defaults and formulas are
// those of TRL 1.16's GRPOConfig. Non-goals: where tokens and rewards come from.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "nought/base/visit.h"

namespace nought {

/// What the losses of tokens are divided by, and how ratios are clipped.
enum class PolicyLossType : uint8_t {
  dapo,     // the tokens of all answers of the step
  grpo,     // the tokens of each answer, then the answers
  bnpo,     // as dapo: TRL's is of a micro-batch, which layouts would change
  dr_grpo,  // the answers, times the most tokens that one may have
  cispo     // as dapo; ratios are clipped from above, and have no gradient
};

template <>
struct EnumNames<PolicyLossType> {
  static constexpr std::array<std::pair<PolicyLossType, std::string_view>, 5> value{
      {{PolicyLossType::dapo, "dapo"},
       {PolicyLossType::grpo, "grpo"},
       {PolicyLossType::bnpo, "bnpo"},
       {PolicyLossType::dr_grpo, "dr_grpo"},
       {PolicyLossType::cispo, "cispo"}}};
};

/// Whether a ratio of probabilities is that of a token, or of its whole answer (GSPO, arXiv 2507.18071).
enum class ImportanceLevel : uint8_t { token, sequence };

template <>
struct EnumNames<ImportanceLevel> {
  static constexpr std::array<std::pair<ImportanceLevel, std::string_view>, 2> value{
      {{ImportanceLevel::token, "token"}, {ImportanceLevel::sequence, "sequence"}}};
};

/// What rewards are divided by, beside the mean of their group that is taken off.
enum class RewardScale : uint8_t { group, batch, none };

template <>
struct EnumNames<RewardScale> {
  static constexpr std::array<std::pair<RewardScale, std::string_view>, 3> value{
      {{RewardScale::group, "group"}, {RewardScale::batch, "batch"}, {RewardScale::none, "none"}}};
};

struct PolicyLossOptions {
  PolicyLossType type = PolicyLossType::dapo;
  double epsilon = 0.2, epsilon_high = 0.2;
  std::optional<double> delta = {};  // what a ratio is capped at that is not clipped
  double beta = 0;                   // what the divergence from the reference counts
  bool corrects_kl = true;           // that is multiplied by the ratio
  ImportanceLevel level = ImportanceLevel::token;
  bool sums_ratios = false;             // an answer's ratio is that of its probabilities, not the mean of its tokens'
  double temperature = 1;               // what the policy that wrote divided its logits by
  int64_t max_completion_length = 512;  // the most tokens of an answer

  /// Whether losses are divided by tokens, and not by answers.
  bool counts_tokens() const { return type != PolicyLossType::grpo && type != PolicyLossType::dr_grpo; }
};

/// The loss of a token, and its derivatives by the logarithm of the ratio and by its own log-probability.
struct PolicyToken {
  double loss = 0, d_log_ratio = 0, d_self = 0;
  double kl = 0;  // without beta
};
/// log_ratio: of the policy to the one that wrote, of the token or of its answer. policy, reference: its
/// log-probabilities.
PolicyToken policy_token(const PolicyLossOptions& options, double log_ratio, double advantage, double policy,
                         double reference);

/// Which bound a ratio has passed, so that its gradient is gone. Of cispo there is one bound, from above.
enum class Clipping : uint8_t { none, low, high };
Clipping clipping_of(const PolicyLossOptions& options, double ratio, double advantage);

/// The mean and the standard deviation, with n - 1, of the numbers that are not NaN; NaN if there is none. Of one
/// number the deviation is 0.
struct Moments {
  double mean = 0, deviation = 0;
};
Moments moments_of(std::span<const double> values);

/// The number below which this share of the values lies, between two of them in proportion, as torch.quantile() has it.
double quantile_of(std::vector<double> values, double share);

/// rewards: [answers, functions], NaN where a function has not scored an answer. The weighted sum for each answer, NaN
/// if nobody scored it.
std::vector<double> total_rewards(std::span<const double> rewards, std::span<const double> weights);

/// rewards: [answers, functions], NaN where a function has not scored an answer; answers are in groups of
/// `generations` neighbours. The weighted sums, less the mean of their group, over what `scale` says plus 1e-4 (of
/// standard deviations with n - 1); 0 for an answer that nobody scored.
std::vector<double> advantages_of(std::span<const double> rewards, std::span<const double> weights, int64_t generations,
                                  RewardScale scale);

/// RLOO (arXiv 2402.14740): what is made of rewards before the others to the same prompt are taken off.
struct LeaveOneOutOptions {
  double beta = 0;                                       // what the divergence from the reference takes off
  std::optional<std::array<double, 2>> clip_range = {};  // rewards are brought into it before
  bool normalizes = false;                               // advantages get mean 0 and deviation 1 over all answers
};
/// The rewards of total_rewards(), clipped, less beta * divergences. divergences: of each answer, the logarithm of the
/// ratio of what the policy that wrote it and the reference say; empty: none are taken off.
std::vector<double> penalised_rewards(const LeaveOneOutOptions& options, std::span<const double> totals,
                                      std::span<const double> divergences);
/// rewards: penalised. Each less the mean of the others of its group that were scored; 0 for an answer that nobody
/// scored, or that has no such others.
std::vector<double> advantages_over_others(const LeaveOneOutOptions& options, std::span<const double> rewards,
                                           int64_t generations);

}  // namespace nought
