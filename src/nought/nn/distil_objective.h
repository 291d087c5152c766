// DistilObjective: a model learns from what a teacher says of the same tokens: the generalised Jensen-Shannon
// divergence of their probabilities (GKD, arXiv 2306.13649), with the formula of TRL 1.16.
//
// Design goals: the logits of both exist for some tokens at a time, and are made once. What the teacher's logits are
// products of comes with the batch, so that its passes are over before those of the model begin. Non-goals: which
// tokens there are (data, train); vocabularies and sequences that ranks share out.
#pragma once

#include <functional>
#include <utility>

#include "nought/nn/objective.h"

namespace nought {

/// The logits of some rows of Batch::teacher: [rows, vocabulary].
using LogitsOfRows = std::function<Tensor(const Tensor& rows)>;
/// Calls its argument while this rank has what makes a teacher's logits.
using HoldTeacher = std::function<void(const Context&, const std::function<void(const LogitsOfRows&)>& body)>;

class DistilObjective final : public Objective {
 public:
  /// beta: of JensenShannon. temperature: what both divide their logits by; those of `hold` are divided already.
  DistilObjective(double beta, double temperature, HoldTeacher hold)
      : beta_(beta), temperature_(temperature), hold_(std::move(hold)) {}

  double temperature() const override { return temperature_; }
  /// ShapeError unless the batch has a row of Batch::teacher for each token.
  RowLoss rows(const Batch& batch) const override;
  void around(const Context& context, const std::function<void()>& pass) const override;
  /// The number of targets that are not ignored.
  double weight(const Batch& batch) const override;

 private:
  double beta_, temperature_;
  HoldTeacher hold_;
  mutable const LogitsOfRows* logits_ = nullptr;  // while around() runs
};

}  // namespace nought
