// The model of ZeRO-Infinity: what is reached where parameters and states lie far away.
#pragma once

namespace nought {

/// FLOPs for each byte that crosses to where parameters and gradients, optimizer states, or the inputs of every
/// `interval`-th block are kept, for so many tokens of a rank at once (arXiv 2104.07857, section 4). Recomputation
/// counts.
constexpr double parameters_intensity(double tokens) { return tokens; }
constexpr double optimizer_intensity(double tokens) { return tokens / 4; }
constexpr double checkpoints_intensity(double hidden, double interval) { return 24 * hidden * interval; }
/// The share of `peak` FLOP/s that is reached if nothing of what crosses at `bandwidth` B/s is hidden (the same
/// section).
constexpr double efficiency(double intensity, double bandwidth, double peak) {
  return intensity * bandwidth / (intensity * bandwidth + peak);
}

}  // namespace nought
