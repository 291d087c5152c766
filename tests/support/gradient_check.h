// Gradients by central differences in f64, for every differentiable function.
#pragma once

#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "support/local_store.h"
#include <gtest/gtest.h>

namespace nought::test {

inline Tensor random(const Context& context, Shape shape, uint64_t seed) {
  Tensor tensor = context.empty(shape, DType::f64);
  for (int64_t i = 0; i < tensor.numel(); ++i) tensor.data<double>()[i] = normal_at(seed, static_cast<uint64_t>(i));
  return tensor;
}

inline Tensor integers(const Context& context, std::vector<int32_t> values) {
  return Tensor::of<int32_t>(*context.memory, {static_cast<int64_t>(values.size())}, std::span<const int32_t>(values));
}

/// The gradient of loss() by each element of x (f64), by central differences.
template <class Loss>
std::vector<double> numeric_gradient(const Tensor& x, Loss&& loss, double step = 1e-5) {
  std::vector<double> gradient;
  for (double& value : x.span<double>()) {
    const double saved = value;
    value = saved + step;
    const double above = loss();
    value = saved - step;
    const double below = loss();
    value = saved;
    gradient.push_back((above - below) / (2 * step));
  }
  return gradient;
}

/// Compares the gradients of sum(weights * f(x; parameters)) by x and by every parameter with central differences.
class GradientCheck {
 public:
  using Function = std::function<Var(Tape&, const Var&)>;

  GradientCheck(const Context& context, Unit& unit, Tensor x, Function f)
      : context_(context), store_(context, unit, DType::f64), x_(std::move(x)), f_(std::move(f)) {}

  void run() {
    Tape tape(context_);
    // In-place functions overwrite their input, so every evaluation gets its own copy.
    const Var x = tape.input(fresh_copy());
    const Var y = f_(tape, x);
    weights_ = random(context_, y.value.shape(), 77);
    tape.backward(y, weights_);
    compare(tape.gradient(x), x_, "x");
    compare(store_.flat_gradients(), store_.flat_values(), "parameters");
  }

 private:
  Tensor fresh_copy() const {
    Tensor own = context_.empty(x_.shape(), x_.dtype());
    context_.copy(x_, own);
    return own;
  }
  double evaluate() {
    Tape tape(context_, false);
    const Tensor y = f_(tape, Tape::constant(fresh_copy())).value;
    return std::inner_product(y.data<double>(), y.data<double>() + y.numel(), weights_.data<double>(), 0.0);
  }
  void compare(const Tensor& gradient, const Tensor& at, const char* what) {
    const std::vector<double> analytic = gradient.to_vector<double>();
    const std::vector<double> numeric = numeric_gradient(at, [&] { return evaluate(); });
    for (size_t i = 0; i < numeric.size(); ++i)
      ASSERT_NEAR(analytic[i], numeric[i], 1e-6 * std::max(1.0, std::abs(numeric[i]))) << what << "[" << i << "]";
  }

  const Context& context_;
  LocalStore store_;
  Tensor x_, weights_;
  Function f_;
};

}  // namespace nought::test
