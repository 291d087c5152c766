#include <vector>

#include "nought/kernels/check.h"
#include "nought/kernels/reference/loops.h"

namespace nought::reference {
namespace {

/// out [+]= sums, in out's own dtype or f32.
template <class Sum>
void write_gradient(const std::vector<Sum>& sums, const Tensor& out, bool accumulate) {
  visit_float(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* d = out.data<T>();
    for (size_t j = 0; j < sums.size(); ++j) {
      d[j] = static_cast<T>(accumulate ? static_cast<Sum>(d[j]) + sums[j] : sums[j]);
    }
  });
}

}  // namespace

void run(const RmsNorm& op) {
  check(op);
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = accumulator_t<T>;
    const int64_t n = op.x.dim(-1);
    const T* weight = op.weight.data<T>();
    for (int64_t row = 0; row < op.x.rows(); ++row) {
      const T* x = op.x.data<T>() + row * n;
      T* y = op.y.data<T>() + row * n;
      Real squares = op.squares ? op.squares.data<Real>()[row] : Real{0};
      for (int64_t j = 0; j < n && !op.squares; ++j) squares += Real{x[j]} * Real{x[j]};
      const Real rstd =
          1 / std::sqrt(squares / static_cast<Real>(op.squares ? op.width : n) + static_cast<Real>(op.eps));
      op.rstd.data<Real>()[row] = rstd;
      for (int64_t j = 0; j < n; ++j) {
        y[j] = static_cast<T>(Real{x[j]} * rstd * (Real{weight[j]} + static_cast<Real>(op.weight_offset)));
      }
    }
  });
}

void run(const RmsNormBackward& op) {
  check(op);
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = accumulator_t<T>;
    const int64_t n = op.x.dim(-1);
    const T* weight = op.weight.data<T>();
    const Real offset = static_cast<Real>(op.weight_offset);
    std::vector<Real> d_weight(static_cast<size_t>(n));
    for (int64_t row = 0; row < op.x.rows(); ++row) {
      const T *x = op.x.data<T>() + row * n, *dy = op.dy.data<T>() + row * n;
      T* dx = op.dx.data<T>() + row * n;
      const Real rstd = op.rstd.data<Real>()[row];
      Real projection = 0;  // mean of the normalised x times its gradient: what moving along x itself does not change
      if (op.products) {
        projection = op.products.data<Real>()[row] * rstd / static_cast<Real>(op.width);
      } else {
        for (int64_t j = 0; j < n; ++j) projection += Real{dy[j]} * (Real{weight[j]} + offset) * Real{x[j]} * rstd;
        projection /= static_cast<Real>(n);
      }
      for (int64_t j = 0; j < n; ++j) {
        const Real normal = Real{x[j]} * rstd, upstream{dy[j]};
        const Real gradient = (upstream * (Real{weight[j]} + offset) - normal * projection) * rstd;
        d_weight[static_cast<size_t>(j)] += upstream * normal;
        dx[j] = static_cast<T>(op.accumulate_x ? Real{dx[j]} + gradient : gradient);
      }
    }
    write_gradient(d_weight, op.d_weight, op.accumulate_weight);
  });
}

void run(const LayerNorm& op) {
  check(op);
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = accumulator_t<T>;
    const int64_t n = op.x.dim(-1);
    const T *weight = op.weight.data<T>(), *bias = op.bias.data<T>();
    for (int64_t row = 0; row < op.x.rows(); ++row) {
      const T* x = op.x.data<T>() + row * n;
      T* y = op.y.data<T>() + row * n;
      Real mean = 0, variance = 0;
      for (int64_t j = 0; j < n; ++j) mean += Real{x[j]};
      mean /= static_cast<Real>(n);
      for (int64_t j = 0; j < n; ++j) variance += (Real{x[j]} - mean) * (Real{x[j]} - mean);
      const Real rstd = 1 / std::sqrt(variance / static_cast<Real>(n) + static_cast<Real>(op.eps));
      op.mean.data<Real>()[row] = mean;
      op.rstd.data<Real>()[row] = rstd;
      for (int64_t j = 0; j < n; ++j) {
        y[j] = static_cast<T>((Real{x[j]} - mean) * rstd * Real{weight[j]} + Real{bias[j]});
      }
    }
  });
}

void run(const LayerNormBackward& op) {
  check(op);
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = accumulator_t<T>;
    const int64_t n = op.x.dim(-1);
    const T* weight = op.weight.data<T>();
    std::vector<Real> d_weight(static_cast<size_t>(n)), d_bias(static_cast<size_t>(n));
    for (int64_t row = 0; row < op.x.rows(); ++row) {
      const T *x = op.x.data<T>() + row * n, *dy = op.dy.data<T>() + row * n;
      T* dx = op.dx.data<T>() + row * n;
      const Real mean = op.mean.data<Real>()[row], rstd = op.rstd.data<Real>()[row];
      Real shift = 0, projection = 0;  // what moving along (1, ..., 1) and along x does not change
      for (int64_t j = 0; j < n; ++j) {
        const Real scaled = Real{dy[j]} * Real{weight[j]};
        shift += scaled;
        projection += scaled * (Real{x[j]} - mean) * rstd;
      }
      shift /= static_cast<Real>(n);
      projection /= static_cast<Real>(n);
      for (int64_t j = 0; j < n; ++j) {
        const Real normal = (Real{x[j]} - mean) * rstd, upstream{dy[j]};
        const Real gradient = (upstream * Real{weight[j]} - shift - normal * projection) * rstd;
        d_weight[static_cast<size_t>(j)] += upstream * normal;
        d_bias[static_cast<size_t>(j)] += upstream;
        dx[j] = static_cast<T>(op.accumulate_x ? Real{dx[j]} + gradient : gradient);
      }
    }
    write_gradient(d_weight, op.d_weight, op.accumulate_weight);
    write_gradient(d_bias, op.d_bias, op.accumulate_weight);
  });
}

}  // namespace nought::reference
