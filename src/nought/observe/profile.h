// Formats the profile of a step for people: its layout, passes, operations and modules.
#pragma once

#include <string>

#include "nought/train/observer.h"

namespace nought {

/// Tables, at most `width` columns wide; 0: 115, or more for long names. Operations beyond the sixteen longest share a
/// row.
std::string to_text(const StepProfile& profile, int width = 0);

/// Writes the profile to its output_file, if it has one.
class ProfileWriter final : public TrainObserver {
 public:
  /// Throws IoError.
  void on_step(const StepReport& report) override;
};

}  // namespace nought
