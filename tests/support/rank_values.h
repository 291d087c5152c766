// Values that every rank can compute for every other, and the comparison of results bit by bit.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "nought/comm/communicator.h"
#include "nought/tensor/random.h"

namespace nought::test {

/// Element i of rank's data. Floats have full mantissas and mixed magnitudes, so that another order of additions gives
/// other bits; integers are small enough that sums of 8 fit.
template <class T>
T value_at(int rank, int64_t i) {
  uint64_t x = (static_cast<uint64_t>(rank) << 40) + static_cast<uint64_t>(i) + 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  x ^= x >> 31;
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(x % 30);
  } else {
    const double mantissa = static_cast<double>(static_cast<int32_t>(x >> 32)) * 0x1p-31;
    const double value = mantissa * static_cast<double>(1 << (x % 8));
    if constexpr (std::is_same_v<T, double>) {
      return value;
    } else {
      return static_cast<T>(static_cast<float>(value));
    }
  }
}

template <class T>
std::vector<T> values_of(int rank, int64_t n) {
  std::vector<T> values(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) values[static_cast<size_t>(i)] = value_at<T>(rank, i);
  return values;
}

/// The reduction of element i over `ranks`, in that order or in pairs: fp32 (f64 for f64, exact for integers), rounded
/// once.
template <class T>
T reduced_at(const std::vector<int>& ranks, int64_t i, ReduceOp op) {
  using Sum = std::conditional_t<std::is_integral_v<T>, int64_t, accumulator_t<T>>;
  if (op == ReduceOp::pairwise_sum) {
    std::vector<Sum> sums;
    for (const int rank : ranks) sums.push_back(static_cast<Sum>(value_at<T>(rank, i)));
    for (; sums.size() > 1; sums.resize((sums.size() + 1) / 2))
      for (size_t k = 0; k < sums.size(); k += 2)
        sums[k / 2] = k + 1 < sums.size() ? static_cast<Sum>(sums[k] + sums[k + 1]) : sums[k];
    return static_cast<T>(sums.front());
  }
  Sum result = static_cast<Sum>(value_at<T>(ranks[0], i));
  for (size_t k = 1; k < ranks.size(); ++k) {
    const Sum value = static_cast<Sum>(value_at<T>(ranks[k], i));
    if (op == ReduceOp::sum) result += value;
    if (op == ReduceOp::max) result = std::max(result, value);
    if (op == ReduceOp::min) result = std::min(result, value);
  }
  return static_cast<T>(result);
}

template <class T>
std::vector<T> reduced_of(const std::vector<int>& ranks, int64_t n, ReduceOp op) {
  std::vector<T> values(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) values[static_cast<size_t>(i)] = reduced_at<T>(ranks, i, op);
  return values;
}

template <class T>
std::vector<T> part_of(const std::vector<T>& values, int64_t part, int64_t length) {
  return {values.begin() + part * length, values.begin() + (part + 1) * length};
}

template <class T>
Tensor tensor_of(const Context& context, const std::vector<T>& values) {
  return Tensor::of<T>(*context.memory, {static_cast<int64_t>(values.size())}, std::span<const T>(values));
}

template <class T>
void expect_same(std::string_view what, const Tensor& got, const std::vector<T>& expected) {
  require(got.numel() == static_cast<int64_t>(expected.size()), "{}: {} elements, expected {}", what, got.numel(),
          expected.size());
  const T* values = got.data<T>();
  for (size_t i = 0; i < expected.size(); ++i) {
    require(std::memcmp(values + i, &expected[i], sizeof(T)) == 0, "{} of {}: element {} is {}, expected {}", what, got,
            i, static_cast<double>(values[i]), static_cast<double>(expected[i]));
  }
}

inline std::vector<int> all_ranks(int size) {
  std::vector<int> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(rank);
  return ranks;
}

}  // namespace nought::test
