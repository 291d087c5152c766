#include <vector>

#include "nought/kernels/check.h"
#include "nought/kernels/reference/loops.h"

namespace nought::reference {
namespace {

/// Elements of a dense factor in the type of sums.
template <class T>
struct DenseValues {
  const T* values;
  accumulator_t<T> operator[](int64_t i) const { return static_cast<accumulator_t<T>>(values[i]); }
};

template <class T, class C, class B>
void multiply(const MatMul& op, const MatMulSizes& sizes, const B& b) {
  using Sum = accumulator_t<T>;
  const auto [m, n, k] = sizes;
  const T* a = op.a.data<T>();
  const T* bias = op.bias ? op.bias.data<T>() : nullptr;
  C* c = op.c.data<C>();
  std::vector<Sum> sums(static_cast<size_t>(n));  // one row of c
  for (int64_t i = 0; i < m; ++i) {
    std::fill(sums.begin(), sums.end(), Sum{0});
    for (int64_t p = 0; p < k; ++p) {
      const Sum left = static_cast<Sum>(op.transpose_a ? a[p * m + i] : a[i * k + p]);
      for (int64_t j = 0; j < n; ++j) {
        sums[static_cast<size_t>(j)] += left * (op.transpose_b ? b[j * k + p] : b[p * n + j]);
      }
    }
    for (int64_t j = 0; j < n; ++j) {
      Sum sum = sums[static_cast<size_t>(j)];
      if (bias) sum += static_cast<Sum>(bias[j]);
      if (op.accumulate) sum += static_cast<Sum>(c[i * n + j]);
      c[i * n + j] = static_cast<C>(sum);
    }
  }
}

template <class T, class C>
void multiply(const MatMul& op, const MatMulSizes& sizes) {
  if (op.b.is_quantized()) {
    multiply<T, C>(op, sizes, QuantizedValues<accumulator_t<T>>(op.b));
  } else {
    multiply<T, C>(op, sizes, DenseValues<T>{op.b.values.data<T>()});
  }
}

}  // namespace

void run(const MatMul& op) {
  check(op);
  const MatMulSizes sizes = op.sizes();
  visit_float(op.a.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (op.c.dtype() == dtype_of_v<T>) {
      multiply<T, T>(op, sizes);
    } else {
      multiply<T, float>(op, sizes);
    }
  });
}

}  // namespace nought::reference
