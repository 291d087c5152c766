#include "nought/diagnose/stragglers.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "nought/base/error.h"

namespace nought {

namespace {

constexpr double kSlower = 1.1;                                                 // times the median of the others
constexpr int64_t kIntervals = 3;                                               // before a rank is named
enum : size_t { kSteps, kForward, kBackward, kCommunication, kData, kShared };  // what a rank shares, in this order

/// One of the shared numbers, of each rank.
std::vector<double> of_ranks(std::span<const double> shared, size_t which) {
  std::vector<double> values;
  for (size_t at = which; at < shared.size(); at += kShared) values.push_back(shared[at]);
  return values;
}

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double median_without(std::vector<double> values, int rank) {
  values.erase(values.begin() + rank);
  return median_of(std::move(values));
}

int slowest_of(const std::vector<double>& values) {
  return static_cast<int>(std::max_element(values.begin(), values.end()) - values.begin());
}

TimeSpread spread_of(const std::vector<double>& values) {
  const int slowest = slowest_of(values);
  return {*std::min_element(values.begin(), values.end()), median_of(values), values[static_cast<size_t>(slowest)],
          slowest};
}

std::string in_milliseconds(double seconds) { return fmt::format("{:.3g} ms", 1e3 * seconds); }

}  // namespace

void StragglerLog::add(const StepBreakdown& times) {
  if (std::exchange(first_, false)) return;
  sum_.forward += times.forward - times.forward_waits;
  sum_.backward += times.backward - times.backward_waits;
  sum_.communication += times.communication;
  sum_.data += times.data;
  ++steps_;
}

std::vector<double> StragglerLog::take(int64_t step) {
  if (step % interval_ != 0 || steps_ == 0) return {};
  const auto count = static_cast<double>(std::exchange(steps_, 0));
  const StepBreakdown sum = std::exchange(sum_, {});
  return {count, sum.forward / count, sum.backward / count, sum.communication / count, sum.data / count};
}

RankComparison StragglerLog::compare(int64_t step, std::span<const double> shared) {
  require(!shared.empty() && shared.size() % kShared == 0, "{} numbers are not the times of ranks", shared.size());
  RankComparison result{.steps = static_cast<int64_t>(shared[kSteps]),
                        .forward = spread_of(of_ranks(shared, kForward)),
                        .backward = spread_of(of_ranks(shared, kBackward)),
                        .communication = spread_of(of_ranks(shared, kCommunication)),
                        .data = spread_of(of_ranks(shared, kData))};
  if (shared.size() > kShared) result.warning = judge(step, result.steps, shared);
  return result;
}

std::string StragglerLog::judge(int64_t step, int64_t steps, std::span<const double> shared) {
  std::vector<double> work(shared.size() / kShared);
  for (const size_t kind : {kForward, kBackward, kData})
    for (size_t rank = 0; rank < work.size(); ++rank) work[rank] += shared[rank * kShared + kind];
  const int rank = slowest_of(work);
  const double own = work[static_cast<size_t>(rank)], others = median_without(work, rank);
  if (own <= kSlower * others) return suspect_ = -1, "";
  if (rank != suspect_) suspect_ = rank, since_ = step - steps, intervals_ = 0, next_warning_ = kIntervals;
  if (++intervals_ < next_warning_) return "";
  next_warning_ *= 2;

  constexpr std::array<std::pair<size_t, const char*>, 3> kinds{
      {{kForward, "forward"}, {kBackward, "backward"}, {kData, "data"}}};
  const auto behind = [&](size_t kind) {
    const std::vector<double> values = of_ranks(shared, kind);
    return values[static_cast<size_t>(rank)] - median_without(values, rank);
  };
  const auto [kind, name] = *std::max_element(
      kinds.begin(), kinds.end(), [&](const auto& a, const auto& b) { return behind(a.first) < behind(b.first); });
  const std::vector<double> values = of_ranks(shared, kind);
  const std::string host = hosts_.empty() ? "" : fmt::format(" on {}", hosts_[static_cast<size_t>(rank)]);
  return fmt::format(
      "rank {}{} has been slower than the others since step {}: its own work takes {} a step, {:.2f} times their "
      "median "
      "of {}; most of that is {}, {} where theirs is {}",
      rank, host, since_, in_milliseconds(own), own / others, in_milliseconds(others), name,
      in_milliseconds(values[static_cast<size_t>(rank)]), in_milliseconds(median_without(values, rank)));
}

}  // namespace nought
