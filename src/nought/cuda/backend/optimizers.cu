// One pass over parameter, states and gradient. In fp32 the products and sums of kernels/cpu/optimizers.cpp are fused
// where they are fused there, so results have the bits of a CPU with fused multiply-add. Where the gradient or the copy
// is f64, all arithmetic is f64, as on the reference.
#include "nought/cuda/backend/functions.h"
#include "nought/cuda/backend/operations.h"
#include "nought/kernels/narrowing.h"

namespace nought::cuda {
namespace {

/// What an update reads and writes of one element. In memory states are f32.
template <class Real>
struct Element {
  Real parameter, first, second, direction;
};

/// The arrays of an update; what is null is not there.
struct UpdateArrays {
  float *parameter = nullptr, *first = nullptr, *second = nullptr, *direction = nullptr;
  Array gradient = {}, copy = {};
  bool keeps_parameter = false;  // it is read only
};

/// Elements that a thread updates at once.
constexpr int kWidth = 8;
/// kCount neighbours as they are read and written.
template <class Real, int kCount>
struct Row {
  Real values[kCount];

  template <class T>
  __device__ void read(const T* from) {
    if constexpr (kCount == 1) {
      values[0] = static_cast<Real>(accumulator_t<T>{*from});
    } else {
      const Values<T, kCount> there(from, true);
      for (int k = 0; k < kCount; ++k) values[k] = static_cast<Real>(there[k]);
    }
  }
  template <class T>
  __device__ void write(T* to) const {
    accumulator_t<T> there[kCount];
    for (int k = 0; k < kCount; ++k) there[k] = static_cast<accumulator_t<T>>(static_cast<float>(values[k]));
    write_values<T, kCount>(to, true, there);
  }
  __device__ void fill(Real value) {
    for (int k = 0; k < kCount; ++k) values[k] = value;
  }
  __device__ void read_if_there(const float* from, int64_t i) {
    if (from != nullptr)
      read(from + i);
    else
      fill(0);
  }
  __device__ void write_if_there(float* to, int64_t i) const {
    if (to != nullptr) write(to + i);
  }
};

/// Calls f with the array as it is. The dtype is the same for all threads, so that the choice costs little, and one
/// kernel serves all.
template <class F>
__device__ void visit_array(const Array& array, const F& f) {
  switch (array.dtype) {
    case DType::f64:
      return f(array.as<double>());
    case DType::bf16:
      return f(array.as<bf16_t>());
    case DType::f16:
      return f(array.as<f16_t>());
    default:
      return f(array.as<float>());
  }
}

/// Updates elements [i, i + kCount).
template <int kCount, class Real, class Update>
__device__ void update_at(const Update& update, const UpdateArrays& a, int64_t i) {
  Row<Real, kCount> parameter, first, second, direction;
  parameter.read_if_there(a.parameter, i);
  first.read_if_there(a.first, i);
  second.read_if_there(a.second, i);
  if (a.gradient.at != nullptr)
    visit_array(a.gradient, [&](const auto* gradient) { direction.read(gradient + i); });
  else
    direction.read_if_there(a.direction, i);
  for (int k = 0; k < kCount; ++k) {
    Element<Real> e{parameter.values[k], first.values[k], second.values[k], 0};
    update(e, direction.values[k]);
    parameter.values[k] = e.parameter, first.values[k] = e.first;
    second.values[k] = e.second, direction.values[k] = e.direction;
  }
  first.write_if_there(a.first, i);
  second.write_if_there(a.second, i);
  if (a.gradient.at != nullptr) direction.write_if_there(a.direction, i);
  if (a.keeps_parameter || a.parameter == nullptr) return;
  parameter.write(a.parameter + i);
  if (a.copy.at != nullptr) visit_array(a.copy, [&](auto* copy) { parameter.write(copy + i); });
}

template <class Real, class Update>
__global__ void __launch_bounds__(kThreads) update_kernel(Update update, UpdateArrays a, int64_t n, bool aligned) {
  const int64_t whole = aligned ? n - n % kWidth : 0;
  for (int64_t i = kWidth * thread_of_grid(); i < whole; i += kWidth * threads_of_grid())
    update_at<kWidth, Real>(update, a, i);
  for (int64_t i = whole + thread_of_grid(); i < n; i += threads_of_grid()) update_at<1, Real>(update, a, i);
}

template <class Real>
struct AdamStep {
  Real keep, decay, gradient_scale, beta1, rest1, beta2, rest2, inverse_root2, eps, step;
  explicit AdamStep(const Adam& op)
      : keep(static_cast<Real>(op.decoupled_decay ? 1 - op.lr * op.weight_decay : 1)),
        decay(static_cast<Real>(op.decoupled_decay ? 0 : op.weight_decay)),
        gradient_scale(static_cast<Real>(op.gradient_scale)),
        beta1(static_cast<Real>(op.beta1)),
        rest1(static_cast<Real>(1 - op.beta1)),
        beta2(static_cast<Real>(op.beta2)),
        rest2(static_cast<Real>(1 - op.beta2)),
        inverse_root2(static_cast<Real>(1 / std::sqrt(op.bias2))),
        eps(static_cast<Real>(op.eps)),
        step(static_cast<Real>(op.lr / op.bias1)) {}
  __device__ void operator()(Element<Real>& e, Real gradient) const {
    const Real p = e.parameter * keep, g = multiply_add(decay, p, gradient * gradient_scale);
    e.first = multiply_add(beta1, e.first, rest1 * g);
    e.second = multiply_add(beta2, e.second, rest2 * (g * g));
    const Real root = multiply_add(sqrt(e.second), inverse_root2, eps);
    e.parameter = multiply_add(-step, e.first / root, p);
  }
};

template <class Real>
struct SgdStep {
  Real lr, decay, gradient_scale, momentum, kept, added;
  bool has_buffer, nesterov;
  explicit SgdStep(const Sgd& op)
      : lr(static_cast<Real>(op.lr)),
        decay(static_cast<Real>(op.weight_decay)),
        gradient_scale(static_cast<Real>(op.gradient_scale)),
        momentum(static_cast<Real>(op.momentum)),
        kept(static_cast<Real>(op.first ? 0 : op.momentum)),
        added(static_cast<Real>(op.first ? 1 : 1 - op.dampening)),
        has_buffer(op.momentum_buffer.defined()),
        nesterov(op.nesterov) {}
  __device__ void operator()(Element<Real>& e, Real gradient) const {
    Real g = multiply_add(decay, e.parameter, gradient * gradient_scale);
    if (has_buffer) {
      e.first = multiply_add(kept, e.first, added * g);
      g = nesterov ? multiply_add(momentum, e.first, g) : e.first;
    }
    e.parameter = multiply_add(-lr, g, e.parameter);
  }
};

template <class Real>
struct AdagradStep {
  Real lr, decay, gradient_scale, eps;
  explicit AdagradStep(const Adagrad& op)
      : lr(static_cast<Real>(op.lr)),
        decay(static_cast<Real>(op.weight_decay)),
        gradient_scale(static_cast<Real>(op.gradient_scale)),
        eps(static_cast<Real>(op.eps)) {}
  __device__ void operator()(Element<Real>& e, Real gradient) const {
    const Real g = multiply_add(decay, e.parameter, gradient * gradient_scale);
    e.first = multiply_add(g, g, e.first);
    e.parameter = multiply_add(-lr, g / (sqrt(e.first) + eps), e.parameter);
  }
};

template <class Real>
struct RmsPropStep {
  Real lr, decay, gradient_scale, eps, kept, added;
  explicit RmsPropStep(const RmsProp& op)
      : lr(static_cast<Real>(op.lr)),
        decay(static_cast<Real>(op.weight_decay)),
        gradient_scale(static_cast<Real>(op.gradient_scale)),
        eps(static_cast<Real>(op.eps)),
        kept(static_cast<Real>(op.alpha)),
        added(static_cast<Real>(1 - op.alpha)) {}
  __device__ void operator()(Element<Real>& e, Real gradient) const {
    const Real g = multiply_add(decay, e.parameter, gradient * gradient_scale);
    e.first = multiply_add(kept, e.first, added * (g * g));
    e.parameter = multiply_add(-lr, g / (sqrt(e.first) + eps), e.parameter);
  }
};

template <class Real>
struct LionStep {
  Real keep, gradient_scale, beta1, rest1, beta2, rest2, step;
  explicit LionStep(const Lion& op)
      : keep(static_cast<Real>(1 - op.lr * op.weight_decay)),
        gradient_scale(static_cast<Real>(op.gradient_scale)),
        beta1(static_cast<Real>(op.beta1)),
        rest1(static_cast<Real>(1 - op.beta1)),
        beta2(static_cast<Real>(op.beta2)),
        rest2(static_cast<Real>(1 - op.beta2)),
        step(static_cast<Real>(op.lr)) {}
  __device__ void operator()(Element<Real>& e, Real gradient) const {
    const Real g = gradient * gradient_scale, c = multiply_add(beta1, e.first, rest1 * g);
    const Real sign = c > 0 ? Real{1} : c < 0 ? Real{-1} : c;  // NaN stays
    e.parameter = multiply_add(-step, sign, e.parameter * keep);
    e.first = multiply_add(beta2, e.first, rest2 * g);
  }
};

template <class Real>
struct LambStep {
  Real decay, gradient_scale, beta1, rest1, beta2, rest2, inverse1, inverse_root2, eps;
  explicit LambStep(const LambDirection& op)
      : decay(static_cast<Real>(op.weight_decay)),
        gradient_scale(static_cast<Real>(op.gradient_scale)),
        beta1(static_cast<Real>(op.beta1)),
        rest1(static_cast<Real>(1 - op.beta1)),
        beta2(static_cast<Real>(op.beta2)),
        rest2(static_cast<Real>(1 - op.beta2)),
        inverse1(static_cast<Real>(1 / op.bias1)),
        inverse_root2(static_cast<Real>(1 / std::sqrt(op.bias2))),
        eps(static_cast<Real>(op.eps)) {}
  __device__ void operator()(Element<Real>& e, Real gradient) const {
    const Real g = gradient * gradient_scale;
    e.first = multiply_add(beta1, e.first, rest1 * g);
    e.second = multiply_add(beta2, e.second, rest2 * (g * g));
    const Real adam = e.first * inverse1 / multiply_add(sqrt(e.second), inverse_root2, eps);
    e.direction = multiply_add(decay, e.parameter, adam);
  }
};

template <class Real>
struct MomentumStep {
  Real momentum, rest, gradient_scale;
  bool nesterov;
  explicit MomentumStep(const MomentumDirection& op)
      : momentum(static_cast<Real>(op.momentum)),
        rest(static_cast<Real>(1 - op.momentum)),
        gradient_scale(static_cast<Real>(op.gradient_scale)),
        nesterov(op.nesterov) {}
  __device__ void operator()(Element<Real>& e, Real gradient) const {
    const Real share = rest * (gradient * gradient_scale);
    e.first = multiply_add(momentum, e.first, share);
    e.direction = nesterov ? multiply_add(momentum, e.first, share) : e.first;
  }
};

/// Its gradient is the direction.
template <class Real>
struct DirectionStep {
  const double* squares;
  double step, least_ratio, greatest_ratio;
  Real keep;
  explicit DirectionStep(const ApplyDirection& op)
      : squares(op.squares ? op.squares.data<double>() : nullptr),
        step(op.step),
        least_ratio(op.least_ratio),
        greatest_ratio(op.greatest_ratio),
        keep(static_cast<Real>(op.keep)) {}
  __device__ void operator()(Element<Real>& e, Real direction) const {
    double taken = step;
    if (squares != nullptr && squares[0] != 0 && squares[1] != 0) {
      const double ratio = sqrt(squares[0]) / sqrt(squares[1]);
      const double bounded = greatest_ratio < ratio ? greatest_ratio : ratio;
      taken = step * (least_ratio < bounded ? bounded : least_ratio);
    }
    e.parameter = multiply_add(-static_cast<Real>(taken), direction, e.parameter * keep);
  }
};

/// The update in f64 if an array is f64, else in fp32.
template <template <class> class Step, class Op>
void update(const Op& op, const UpdateArrays& arrays, int64_t n, const Place& at) {
  const int64_t pieces = blocks_of_threads_for((n + kWidth - 1) / kWidth);
  const bool aligned = are_aligned(arrays.parameter, arrays.first, arrays.second, arrays.direction,
                                   arrays.gradient.as<char>(), arrays.copy.as<char>());
  if ((arrays.gradient && arrays.gradient.dtype == DType::f64) || (arrays.copy && arrays.copy.dtype == DType::f64)) {
    launch(at.launch, pieces, dim3(kThreads), update_kernel<double, Step<double>>, Step<double>(op), arrays, n,
           aligned);
  } else {
    launch(at.launch, pieces, dim3(kThreads), update_kernel<float, Step<float>>, Step<float>(op), arrays, n, aligned);
  }
}

float* floats(const Tensor& tensor) { return tensor ? tensor.data<float>() : nullptr; }

}  // namespace

void start(const Adam& op, Place& at) {
  update<AdamStep>(op,
                   {.parameter = floats(op.parameter),
                    .first = floats(op.exp_avg),
                    .second = floats(op.exp_avg_sq),
                    .gradient = array_of(op.gradient),
                    .copy = array_of(op.parameter_copy)},
                   op.parameter.numel(), at);
}
void start(const Sgd& op, Place& at) {
  update<SgdStep>(op,
                  {.parameter = floats(op.parameter),
                   .first = floats(op.momentum_buffer),
                   .gradient = array_of(op.gradient),
                   .copy = array_of(op.parameter_copy)},
                  op.parameter.numel(), at);
}
void start(const Adagrad& op, Place& at) {
  update<AdagradStep>(op,
                      {.parameter = floats(op.parameter),
                       .first = floats(op.sum),
                       .gradient = array_of(op.gradient),
                       .copy = array_of(op.parameter_copy)},
                      op.parameter.numel(), at);
}
void start(const RmsProp& op, Place& at) {
  update<RmsPropStep>(op,
                      {.parameter = floats(op.parameter),
                       .first = floats(op.square),
                       .gradient = array_of(op.gradient),
                       .copy = array_of(op.parameter_copy)},
                      op.parameter.numel(), at);
}
void start(const Lion& op, Place& at) {
  update<LionStep>(op,
                   {.parameter = floats(op.parameter),
                    .first = floats(op.exp_avg),
                    .gradient = array_of(op.gradient),
                    .copy = array_of(op.parameter_copy)},
                   op.parameter.numel(), at);
}
void start(const LambDirection& op, Place& at) {
  update<LambStep>(op,
                   {.parameter = floats(op.parameter),
                    .first = floats(op.exp_avg),
                    .second = floats(op.exp_avg_sq),
                    .direction = floats(op.direction),
                    .gradient = array_of(op.gradient),
                    .keeps_parameter = true},
                   op.direction.numel(), at);
}
void start(const MomentumDirection& op, Place& at) {
  update<MomentumStep>(
      op, {.first = floats(op.momentum_buffer), .direction = floats(op.direction), .gradient = array_of(op.gradient)},
      op.direction.numel(), at);
}
void start(const ApplyDirection& op, Place& at) {
  update<DirectionStep>(
      op, {.parameter = floats(op.parameter), .direction = floats(op.direction), .copy = array_of(op.parameter_copy)},
      op.parameter.numel(), at);
}

}  // namespace nought::cuda
