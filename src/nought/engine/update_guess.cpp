#include "nought/engine/update_guess.h"

#include <fmt/format.h>

namespace nought {

std::string UpdateGuess::add(bool right) {
  if (tries_) ++tried_, wrong_ += right ? 0 : 1;
  in_a_row_ = right == tries_ ? 0 : in_a_row_ + 1;
  if (in_a_row_ < (tries_ ? kWrong : kRight)) return {};
  tries_ = !tries_, in_a_row_ = 0;
  if (tries_ || told_) return {};
  told_ = true;
  return fmt::format(
      "the gradients of {} steps in a row were clipped or not finite, and their updates, which ran overlapped with the "
      "backward pass, undone: updates wait for it now, until {} steps in a row are not "
      "(training.update_beside_backward)",
      kWrong, kRight);
}

}  // namespace nought
