// clip_factor(): what gradients are multiplied by so that their norm does not exceed a limit.
#pragma once

#include <algorithm>

namespace nought {

/// max_norm <= 0: no limit. The small number beside the norm is torch.nn.utils.clip_grad_norm_'s.
inline double clip_factor(double norm, double max_norm) {
  return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
}

}  // namespace nought
