// PolicyObjective: the loss of answers that a policy has written itself, token by token (nn/policy_loss.h).
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "nought/nn/policy_loss.h"
#include "nought/nn/sequence_objective.h"

namespace nought {

/// Sums over the tokens of the batches of a step, as far as this rank has them; ratios: how many there are, of tokens
/// or of whole answers, and how many of these are clipped.
struct PolicyNumbers {
  double tokens = 0, kl = 0, entropy = 0, ratios = 0, low_clipped = 0, high_clipped = 0;

  /// Ratios, and what is clipped of them, of the answers with the numbers from `first` on.
  struct OfAnswer {
    double ratios = 0, low_clipped = 0, high_clipped = 0;
  };
  int64_t first = 0;
  std::vector<OfAnswer> answers = {};  // as many as somebody wants
};

/// What is asked of each target.
enum class TokenNumber : uint8_t { log_probability, entropy };

/// Keeps a number of each target of sequences, and has no loss.
class TokenLogsObjective final : public WeighedObjective {
 public:
  /// logs: gets them, f64; the first token of sequence `number` has the place begins[number]. In
  /// batches BatchSequences::written is the place of each target in its sequence.
  TokenLogsObjective(double temperature, std::vector<int64_t> begins, std::shared_ptr<SequenceSums> logs,
                     TokenNumber which = TokenNumber::log_probability)
      : temperature_(temperature), begins_(std::move(begins)), logs_(std::move(logs)), which_(which) {}

  double weight(const Batch& batch) const override { return std::ssize(batch.sequences.all) * batch.sequences.share; }
  Weighed weigh(const Context& context, const Batch& batch, std::span<const double> losses,
                Communicator* parts) const override;
  bool wants_entropies() const override { return which_ == TokenNumber::entropy; }
  Weighed weigh_with_entropies(const Context& context, const Batch& batch, std::span<const double> losses,
                               std::span<const double> entropies, Communicator* parts) const override;
  double temperature() const override { return temperature_; }

 private:
  double temperature_;
  std::vector<int64_t> begins_;
  std::shared_ptr<SequenceSums> logs_;
  TokenNumber which_;
};

class PolicyObjective final : public WeighedObjective {
 public:
  /// numbers: gets what each batch adds; null: nobody wants them. least_entropy: advantages count for tokens of so much
  /// alone; null: for all.
  explicit PolicyObjective(const PolicyLossOptions& options, std::shared_ptr<PolicyNumbers> numbers = nullptr,
                           std::shared_ptr<const double> least_entropy = nullptr)
      : options_(options), numbers_(std::move(numbers)), least_entropy_(std::move(least_entropy)) {}

  /// The number of its answers, or of their tokens: see PolicyLossOptions::counts_tokens().
  double weight(const Batch& batch) const override;
  /// The batch has BatchSequences::written and, with a beta, BatchSequences::known.
  Weighed weigh(const Context& context, const Batch& batch, std::span<const double> losses,
                Communicator* parts) const override {
    return weigh_with_entropies(context, batch, losses, {}, parts);
  }
  bool wants_entropies() const override { return numbers_ != nullptr || least_entropy_ != nullptr; }
  Weighed weigh_with_entropies(const Context& context, const Batch& batch, std::span<const double> losses,
                               std::span<const double> entropies, Communicator* parts) const override;
  double temperature() const override { return options_.temperature; }

 private:
  /// Whether anything is learned from it.
  static bool counts(const BatchSequence& sequence) { return sequence.wanted.size() < 2 || sequence.wanted[1] != 0; }
  /// What the tokens of a sequence count.
  double weight_of(const BatchSequence& sequence) const;
  /// What the logarithm of the ratio of a token counts in that of its sequence.
  double share_of(const BatchSequence& sequence) const { return options_.sums_ratios ? 1 : 1 / sequence.targets; }

  PolicyLossOptions options_;
  std::shared_ptr<PolicyNumbers> numbers_;
  std::shared_ptr<const double> least_entropy_;
};

}  // namespace nought
