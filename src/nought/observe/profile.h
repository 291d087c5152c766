// The profile of a step as a person reads it: what the step was, its passes, operations and modules.
#pragma once

#include <string>

#include "nought/train/observer.h"

namespace nought {

/// Tables of 115 columns. Operations beyond the sixteen longest share a row.
std::string to_text(const StepProfile& profile);

/// Writes the profile to its file, where it has one.
class ProfileWriter final : public TrainObserver {
 public:
  /// IoError.
  void on_step(const StepReport& report) override;
};

}  // namespace nought
