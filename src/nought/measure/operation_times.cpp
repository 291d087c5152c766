#include "nought/measure/operation_times.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <vector>

#include "nought/base/timing.h"
#include "nought/comm/mesh.h"

namespace nought {

namespace {

constexpr double kLongestMeasured = 0.02;             // seconds: what takes longer is near the rates
constexpr double kLargestMeasured = 64 << 20;         // bytes
constexpr size_t kFewestRounds = 3, kMostRounds = 9;  // rounds
constexpr double kBusy = 0.9;                         // of the processor time that ranks should get

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

Tensor OperationTimes::filled(const Context& context, const Shape& shape, DType dtype) {
  const Tensor tensor = context.empty(shape, dtype, Category::workspace);
  const bool is_float = dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::f64;
  if (is_float && tensor.numel() > 0) {
    context.run(Fill{.x = tensor, .value = 0.5});
  } else {
    context.zero(tensor);  // which is an index of any table
  }
  return tensor;
}

double OperationTimes::seconds_of_rank(const std::function<void()>& f, bool one_thread) {
  // The time of one thread is the time that it had a core. What a team of threads waits for is part of its time.
  if (!one_thread) return seconds_of(f);
  const double begin = processor_seconds();
  f();
  return processor_seconds() - begin;
}

void OperationTimes::measure(Communicator& ranks, const Context& context, double seconds) {
  double of_processor = 0, passed = 0;
  double here = 0;
  std::vector<double> rounds;
  for (size_t round = 0; round < kMostRounds && (round < kFewestRounds || passed < seconds); ++round) {
    ranks.barrier().wait();
    double total = 0;
    const double processor = processor_seconds();
    const double wall = seconds_of([&] {
      for (auto& [key, timed] : all_) {
        if (!timed.run || timed.estimate > kLongestMeasured || timed.bytes > kLargestMeasured) continue;
        try {
          timed.samples.push_back(timed.run(context, rates_.threads == 1));
          total += static_cast<double>(timed.runs) * timed.samples.back();
        } catch (const Error&) {  // its values mean nothing: an operation may refuse them
          timed.run = nullptr, timed.samples.clear(), ++refused_;
        }
      }
    });
    of_processor += processor_seconds() - processor, here += wall;
    if (round > 0) rounds.push_back(total);
    std::array<double, 1> slowest{passed + wall};
    all_reduce_values(ranks, context, slowest, ReduceOp::max);
    passed = slowest[0];
  }
  take_medians(ranks, context);
  // By how much this was longer than the share of a core that a rank should get.
  const double busiest = rates_.threads > 1 ? 1 : std::max(1.0, here / of_processor / std::max(rates_.share, 1.0));
  const double median = std::max(median_of(rounds), 1e-9);
  std::array<double, 3> spread{-*std::min_element(rounds.begin(), rounds.end()) / median,
                               *std::max_element(rounds.begin(), rounds.end()) / median, busiest};
  all_reduce_values(ranks, context, spread, ReduceOp::max);
  rates_.fastest = std::min(1.0, -spread[0]), rates_.slowest = std::max(1.0, spread[1] * spread[2]);
  rates_.busy = spread[2] * kBusy > 1;
}

void OperationTimes::take_medians(Communicator& ranks, const Context& context) {
  std::vector<double> medians;
  for (const auto& [key, timed] : all_) medians.push_back(timed.samples.empty() ? 0 : median_of(timed.samples));
  all_reduce_values(ranks, context, medians);
  size_t i = 0;
  for (auto& [key, timed] : all_) {
    timed.median = medians[i++] / ranks.size();
    timed.run = nullptr;
  }
}

}  // namespace nought
