#include "nought/cuda/backend/functions.h"
#include "nought/cuda/backend/operations.h"

namespace nought::cuda {
namespace {

template <class T>
struct ScaledColumn {
  using Real = accumulator_t<T>;
  const T* x;
  const Real* factors;
  const T* bias;  // null: none
  T* y;
  Real offset;
  int64_t n;
  bool accumulate;
  __device__ void operator()(int64_t i) const {
    Real value = Real{x[i]} * (factors[i % n] - offset);
    if (bias != nullptr) value += Real{bias[i % n]};
    y[i] = static_cast<T>(accumulate ? Real{y[i]} + value : value);
  }
};

/// A thread adds up a column.
template <class T>
struct ColumnDot {
  using Sum = accumulator_t<T>;
  const T *a, *b;
  const Sum* divisors;  // null: none
  Sum* out;
  int64_t rows, n;
  __device__ void operator()(int64_t j) const {
    Sum sum = 0;
    for (int64_t i = 0; i < rows; ++i) sum += Sum{a[i * n + j]} * Sum{b[i * n + j]};
    out[j] = divisors != nullptr ? sum / divisors[j] : sum;
  }
};

template <class T>
struct RowNorm {
  using Sum = accumulator_t<T>;
  const Sum *squares, *products, *gram;
  const T *b, *magnitudes;
  Sum *norms, *factors;
  Sum scale;
  int64_t rank, n;
  __device__ void operator()(int64_t o) const {
    const T* row = b + o * rank;
    Sum mixed = 0, own = 0;
    for (int64_t k = 0; k < rank; ++k) {
      mixed += Sum{row[k]} * products[k * n + o];
      Sum of_gram = 0;
      for (int64_t l = 0; l < rank; ++l) of_gram += gram[k * rank + l] * Sum{row[l]};
      own += Sum{row[k]} * of_gram;
    }
    const Sum square = squares[o] + scale * (2 * mixed + scale * own);
    const Sum norm = square > 0 ? sqrt(square) : Sum{1};
    norms[o] = norm;
    factors[o] = Sum{magnitudes[o]} / norm;
  }
};

}  // namespace

void start(const ScaleColumns& op, Place& at) {
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = accumulator_t<T>;
    for_each(at.launch, op.x.numel(),
             ScaledColumn<T>{op.x.data<T>(), op.factors.data<Real>(), array_of(op.bias).as<const T>(), op.y.data<T>(),
                             static_cast<Real>(op.offset), op.x.dim(-1), op.accumulate});
  });
}

void start(const DotColumns& op, Place& at) {
  visit_float(op.a.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Sum = accumulator_t<T>;
    for_each(at.launch, op.a.dim(-1),
             ColumnDot<T>{op.a.data<T>(), op.b.data<T>(), array_of(op.divisors).as<const Sum>(), op.out.data<Sum>(),
                          op.a.rows(), op.a.dim(-1)});
  });
}

void start(const LowRankNorms& op, Place& at) {
  visit_float(op.b.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Sum = accumulator_t<T>;
    for_each(at.launch, op.b.rows(),
             RowNorm<T>{op.squares.data<Sum>(), op.products.data<Sum>(), op.gram.data<Sum>(), op.b.data<T>(),
                        op.magnitudes.data<T>(), op.norms.data<Sum>(), op.factors.data<Sum>(),
                        static_cast<Sum>(op.scale), op.b.dim(-1), op.b.rows()});
  });
}

}  // namespace nought::cuda
