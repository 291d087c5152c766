// ForeignStates: where a run of DeepSpeed or FSDP2 was, as the start of a run that goes on from there: masters, and the
// moments of its Adam.
//
// Non-goals: other optimizers, whose weights alone are read, as a model.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "nought/io/foreign_run.h"
#include "nought/optim/options.h"
#include "nought/weights/hf_folder.h"

namespace nought {

class ForeignStates final : public StateSource {
 public:
  /// Opens the folder, and checks that it has all that `optimizer` keeps of what `model` trains, and nothing of what is
  /// frozen. IoError, ConfigError.
  ForeignStates(const std::filesystem::path& folder, const Model& model, const OptimizerOptions& optimizer);

  using StateSource::fill;
  void fill(StateKind kind, const Parameter& parameter, std::span<const Interval> elements,
            const Tensor& destination) const override;

  int64_t updates() const { return run_.updates; }
  /// Steps that were made without an update.
  int64_t skipped() const { return run_.skipped; }
  const std::optional<ForeignLossScale>& loss_scale() const { return run_.loss_scale; }
  /// A line for the user: who wrote it, what goes on from it, and what does not. Another one if betas, eps or the decay
  /// of its Adam were others than those of this run.
  std::vector<std::string> describe() const;

 private:
  std::string changes() const;
  void require_optimizer(const OptimizerOptions& optimizer, const Parameter& parameter) const;
  void check(const Parameter& parameter) const;

  std::filesystem::path folder_;
  HfWeights weights_;
  ForeignRun run_;
  OptimizerOptions optimizer_;
};

}  // namespace nought
