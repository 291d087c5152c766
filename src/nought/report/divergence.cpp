#include "nought/report/divergence.h"

#include <array>
#include <bit>
#include <map>

#include <fmt/format.h>

#include "nought/checkpoint/checkpoint_folders.h"
#include "nought/checkpoint/compare_checkpoints.h"

namespace nought {

namespace {

constexpr std::array<const char*, 2> kCompared{"loss", "grad_norm"};

bool same_bits(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

/// By step; of a step that was made twice the last.
std::map<int64_t, double> by_step(const StepTable& table, const char* name) {
  std::map<int64_t, double> values;
  const std::vector<double>* column = table.find(name);
  for (size_t i = 0; column != nullptr && i < column->size(); ++i) values[table.steps()[i]] = (*column)[i];
  return values;
}

int64_t shared_steps(const StepTable& first, const StepTable& other) {
  const auto here = by_step(first, "loss"), there = by_step(other, "loss");
  int64_t count = 0;
  for (const auto& [step, loss] : here) count += there.contains(step) ? 1 : 0;
  return count;
}

}  // namespace

std::optional<LossDifference> first_difference(const StepTable& first, const StepTable& other) {
  std::optional<LossDifference> found;
  for (const char* name : kCompared) {
    const auto there = by_step(other, name);
    for (const auto& [step, value] : by_step(first, name)) {
      const auto pair = there.find(step);
      if (pair == there.end() || same_bits(value, pair->second)) continue;
      if (!found || step < found->step)
        found = LossDifference{step, fmt::format("{} {} and {}", name, value, pair->second)};
      break;
    }
  }
  return found;
}

RunDivergence find_divergence(const RunFolder& first, const RunFolder& other) {
  RunDivergence divergence{.steps = shared_steps(first.steps, other.steps)};
  if (const auto loss = first_difference(first.steps, other.steps))
    divergence.different = loss->step, divergence.how = loss->how;
  for (const std::filesystem::path& here : list_checkpoints(first.path)) {
    const int64_t step = *checkpoint_step(here);
    const std::filesystem::path there = checkpoint_path(other.path, step);
    if (!is_checkpoint(there) || (divergence.different && step > *divergence.different)) continue;
    const CheckpointDifference compared = compare_checkpoints(here, there);
    ++divergence.checkpoints;
    if (!compared.equal) {
      ++divergence.incomparable;
    } else if (*compared.equal) {
      // A loss that differs at this step was found before, and states may still have come out the same.
      if (!divergence.different || step < *divergence.different) divergence.equal = step;
    } else if (!divergence.different || step < *divergence.different) {
      divergence.different = step, divergence.how = compared.first;
      break;
    }
  }
  return divergence;
}

}  // namespace nought
