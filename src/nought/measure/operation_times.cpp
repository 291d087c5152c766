#include "nought/measure/operation_times.h"

#include <algorithm>
#include <array>
#include <vector>

#include <unistd.h>

#include "nought/base/processor_time.h"
#include "nought/base/timing.h"
#include "nought/comm/mesh.h"

namespace nought {

namespace {

constexpr double kLongestMeasured = 0.02;              // seconds: what takes longer is near the rates
constexpr double kLargestMeasured = 64 << 20;          // bytes
constexpr size_t kFewestRounds = 5, kMostRounds = 12;  // the first of which warms up
constexpr double kBusy = 0.9;  // share of their processor time that ranks get on a machine that is not busy

/// The value at that part of the way from the least to the greatest, or the one below it.
double quantile_of(std::vector<double> values, double part) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(part * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

/// What an operation takes, by repeated measurements. Threads of a team wait for each other, so that another program on
/// one core of several makes each of many operations much longer: a moment without one counts.
double typical_of(const std::vector<double>& samples, int threads) {
  return quantile_of(samples, threads == 1 ? 0.5 : 0.25);
}

/// Bytes of the caches that a core has for itself.
double core_caches() {
  constexpr double kLeast = 256 << 10;  // where the system does not say it
  return std::max(static_cast<double>(::sysconf(_SC_LEVEL2_CACHE_SIZE)), kLeast);
}

}  // namespace

Tensor OperationTimes::filled(const Context& context, const Shape& shape, DType dtype) {
  const Tensor tensor = context.empty(shape, dtype, Category::workspace);
  if (is_float(dtype) && tensor.numel() > 0) {
    context.run(Fill{.x = tensor, .value = 0.5});
  } else {
    context.zero(tensor);  // which is an index of any table
  }
  return tensor;
}

double OperationTimes::seconds_of_rank(const std::function<void()>& f, bool one_thread) {
  // The time of one thread is the time that it had a core. What a team of threads waits for is part of its time.
  return one_thread ? processor_seconds_of(f) : seconds_of(f);
}

double OperationTimes::run_all(const Context& context, const Tensor& of_step, const Tensor& of_caches) {
  double total = 0;
  for (auto& [key, timed] : all_) {
    if (!timed.run || timed.estimate > kLongestMeasured || timed.bytes > kLargestMeasured) continue;
    try {
      timed.samples.push_back(timed.run(context, rates_.threads == 1, timed.updates ? of_step : of_caches));
      total += static_cast<double>(timed.runs) * timed.samples.back();
    } catch (const Error&) {  // its values mean nothing: an operation may refuse them
      timed.run = nullptr, timed.samples.clear(), ++refused_;
    }
  }
  return total;
}

void OperationTimes::measure(Communicator& ranks, const Context& context, double seconds) {
  double bytes = 0;  // bytes of what was counted without data
  for (const auto& [key, timed] : all_) bytes += static_cast<double>(timed.runs) * timed.bytes;
  const double caches = 2 * core_caches() * rates_.threads;
  const auto floats_in = [](double many) { return static_cast<int64_t>(many) / size_of(DType::f32); };
  const int64_t all = floats_in(std::clamp(bytes, caches, std::max(caches, kLargestMeasured)));
  const Tensor of_step = context.empty({all}, DType::f32, Category::workspace);
  const Tensor of_caches = of_step.flat(0, floats_in(caches));
  double of_processor = 0, here = 0, passed = 0;
  std::vector<double> rounds;
  for (size_t round = 0; round < kMostRounds && (round < kFewestRounds || passed < seconds); ++round) {
    if (round == 1)
      for (auto& [key, timed] : all_) timed.samples.clear();
    ranks.barrier().wait();
    const double processor = processor_seconds();
    const double wall = seconds_of([&] { rounds.push_back(run_all(context, of_step, of_caches)); });
    of_processor += processor_seconds() - processor, here += wall;
    std::array<double, 1> slowest{passed + wall};
    all_reduce_values(ranks, context, slowest, ReduceOp::max);
    passed = slowest[0];
  }
  rounds.erase(rounds.begin());
  take_typical(ranks, context);
  // By how much this was longer than the share of a core that a rank should get.
  const double busiest = rates_.threads > 1 ? 1 : std::max(1.0, here / of_processor / std::max(rates_.share, 1.0));
  const double typical = std::max(typical_of(rounds, rates_.threads), 1e-9);
  std::array<double, 3> spread{-*std::min_element(rounds.begin(), rounds.end()) / typical,
                               *std::max_element(rounds.begin(), rounds.end()) / typical, busiest};
  all_reduce_values(ranks, context, spread, ReduceOp::max);
  rates_.fastest = std::min(1.0, -spread[0]), rates_.slowest = std::max(1.0, spread[1] * spread[2]);
  rates_.busy = spread[2] * kBusy > 1;
}

void OperationTimes::take_typical(Communicator& ranks, const Context& context) {
  std::vector<double> typical;
  for (const auto& [key, timed] : all_)
    typical.push_back(timed.samples.empty() ? 0 : typical_of(timed.samples, rates_.threads));
  all_reduce_values(ranks, context, typical);
  size_t i = 0;
  for (auto& [key, timed] : all_) {
    timed.typical = typical[i++] / ranks.size();
    timed.run = nullptr;
  }
}

}  // namespace nought
