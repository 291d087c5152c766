#include "nought/cuda/backend/map.h"
#include "nought/cuda/backend/operations.h"
#include "nought/kernels/narrowing.h"

namespace nought::cuda {
namespace {

template <class T>
struct Sum {
  using Real = accumulator_t<T>;
  __device__ T operator()(T a, T b) const { return static_cast<T>(Real{a} + Real{b}); }
};

template <class T>
struct Scaled {
  using Real = accumulator_t<T>;
  const double* squares;  // null: by factor alone
  double factor, eps;
  __device__ T operator()(T x) const {
    const double taken = squares != nullptr ? factor / (sqrt(*squares) + eps) : factor;
    return static_cast<T>(Real{x} * static_cast<Real>(taken));
  }
};

template <class T>
struct Constant {
  T value;
  __device__ T operator()() const { return value; }
};

template <class X, class Y>
struct Converted {
  __device__ Y operator()(X x) const { return rounded<Y>(accumulator_t<X>{x}); }
};

template <class X, class Y>
struct Added {
  using Real = std::common_type_t<accumulator_t<X>, accumulator_t<Y>>;
  __device__ Y operator()(Y into, X x) const { return rounded<Y>(Real{into} + Real{x}); }
};

template <class F>
void visit_floats(DType a, DType b, const F& f) {
  visit_float(a, [&](auto tag_a) { visit_float(b, [&](auto tag_b) { f(tag_a, tag_b); }); });
}

}  // namespace

void start(const Add& op, Place& at) {
  visit_float(op.out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    map(at.launch, op.out.numel(), Sum<T>{}, op.out.data<T>(), static_cast<const T*>(op.a.data<T>()),
        static_cast<const T*>(op.b.data<T>()));
  });
}

void start(const Scale& op, Place& at) {
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Scaled<T> scaled{array_of(op.squares).as<const double>(), op.factor, op.eps};
    map(at.launch, op.x.numel(), scaled, op.x.data<T>(), static_cast<const T*>(op.x.data<T>()));
  });
}

void start(const Fill& op, Place& at) { fill(at.launch, array_of(op.x), op.value, op.x.numel()); }
void start(const Cast& op, Place& at) { cast(at.launch, array_of(op.x), array_of(op.y), op.x.numel()); }

void start(const AddTo& op, Place& at) {
  visit_floats(op.x.dtype(), op.into.dtype(), [&](auto from, auto to) {
    using X = typename decltype(from)::type;
    using Y = typename decltype(to)::type;
    Y* const into = op.into.data<Y>();
    map(at.launch, op.into.numel(), Added<X, Y>{}, into, static_cast<const Y*>(into),
        static_cast<const X*>(op.x.data<X>()));
  });
}

void fill(const Launch& where, Array x, double value, int64_t n) {
  visit_float(x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    map(where, n, Constant<T>{rounded<T>(value)}, x.as<T>());
  });
}

void cast(const Launch& where, Array x, Array y, int64_t n) {
  visit_floats(x.dtype, y.dtype, [&](auto from, auto to) {
    using X = typename decltype(from)::type;
    using Y = typename decltype(to)::type;
    map(where, n, Converted<X, Y>{}, y.as<Y>(), x.as<const X>());
  });
}

}  // namespace nought::cuda
