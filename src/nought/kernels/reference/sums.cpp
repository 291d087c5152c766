#include <algorithm>
#include <bit>
#include <vector>

#include "nought/kernels/check.h"
#include "nought/kernels/reference/loops.h"

namespace nought::reference {
namespace {

/// The sum of element i of so many inputs, in a binary tree.
template <class T, class Sum>
Sum pairwise_sum(const T* const* inputs, size_t count, int64_t i) {
  if (count == 1) return Sum{inputs[0][i]};
  const size_t left = std::bit_floor(count - 1);
  return static_cast<Sum>(pairwise_sum<T, Sum>(inputs, left, i) + pairwise_sum<T, Sum>(inputs + left, count - left, i));
}

template <class T, class Sum>
void sum_tensors(const SumTensors& op) {
  std::vector<const T*> inputs;
  for (const Tensor& input : op.inputs) inputs.push_back(input.data<T>());
  T* out = op.out.data<T>();
  for (int64_t i = 0; i < op.out.numel(); ++i) {
    if (op.pairwise) {
      out[i] = static_cast<T>(pairwise_sum<T, Sum>(inputs.data(), inputs.size(), i));
      continue;
    }
    Sum sum{inputs[0][i]};
    for (size_t k = 1; k < inputs.size(); ++k) sum = static_cast<Sum>(sum + Sum{inputs[k][i]});
    out[i] = static_cast<T>(sum);
  }
}

}  // namespace

void run(const SumRows& op) {
  check(op);
  visit_floats(op.x.dtype(), op.out.dtype(), [&](auto x_tag, auto out_tag) {
    using T = typename decltype(x_tag)::type;
    using O = typename decltype(out_tag)::type;
    using Sum = accumulator_t<T>;
    const T* x = op.x.data<T>();
    O* out = op.out.data<O>();
    const int64_t rows = op.x.rows(), n = op.x.dim(-1);
    for (int64_t j = 0; j < n; ++j) {
      Sum sum = 0;
      for (int64_t i = 0; i < rows; ++i) sum += Sum{x[i * n + j]};
      if (op.accumulate) sum += static_cast<Sum>(out[j]);
      out[j] = static_cast<O>(sum);
    }
  });
}

void run(const SumTensors& op) {
  check(op);
  visit_dtype(op.out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_integral_v<T>) {
      sum_tensors<T, T>(op);
    } else {
      sum_tensors<T, accumulator_t<T>>(op);
    }
  });
}

void run(const SumElements& op) {
  check(op);
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    double sum = 0;
    for (const T x : op.x.span<T>()) sum += static_cast<double>(accumulator_t<T>{x});
    *op.out.data<double>() = sum;
  });
}

void run(const SumSquares& op) {
  check(op);
  constexpr int64_t kBlock = 65536;
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* x = op.x.data<T>();
    double total = 0;
    for (int64_t begin = 0; begin < op.x.numel(); begin += kBlock) {
      double sum = 0;
      for (int64_t i = begin; i < std::min(begin + kBlock, op.x.numel()); ++i) {
        const double value = static_cast<double>(accumulator_t<T>{x[i]});
        sum += value * value;
      }
      total += sum;
    }
    *op.out.data<double>() = total;
  });
}

}  // namespace nought::reference
