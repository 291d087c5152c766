// UpdateGuess: whether it pays to guess that a step's gradients are finite and stay below the limit of their norm, so
// that its update may run overlapped with the backward pass (zero/update_lane.h). A wrong guess is undone.
//
// It knows norms alone, which all ranks share: all guess alike. What it decides changes no bit, so no checkpoint has
// it.
#pragma once

#include <cstdint>
#include <string>

namespace nought {

class UpdateGuess {
 public:
  /// So many wrong ones in a row end it, until so many steps in a row would have been guessed right.
  static constexpr int64_t kWrong = 3, kRight = 8;

  bool tries() const { return tries_; }
  /// A step was made: whether the guess was right, or would have been. Returns a line for the user when guesses end for
  /// the first time; else "".
  std::string add(bool right);
  /// How many were tried, and how many of these were wrong.
  int64_t tried() const { return tried_; }
  int64_t wrong() const { return wrong_; }

 private:
  bool tries_ = true, told_ = false;
  int64_t in_a_row_ = 0;  // steps that speak against what it does
  int64_t tried_ = 0, wrong_ = 0;
};

}  // namespace nought
