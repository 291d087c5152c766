#include "nought/cuda/backend/launch.h"
#include "nought/cuda/backend/map.h"
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

void add(const Launch& where, Array a, Array b, Array out, int64_t n) {
  visit_float(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    map(where, n, Sum<T>{}, out.as<T>(), a.as<const T>(), b.as<const T>());
  });
}

void scale(const Launch& where, Array x, Array squares, double factor, double eps, int64_t n) {
  visit_float(x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    map(where, n, Scaled<T>{squares.as<const double>(), factor, eps}, x.as<T>(), x.as<const T>());
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

void add_to(const Launch& where, Array x, Array into, int64_t n) {
  visit_floats(x.dtype, into.dtype, [&](auto from, auto to) {
    using X = typename decltype(from)::type;
    using Y = typename decltype(to)::type;
    map(where, n, Added<X, Y>{}, into.as<Y>(), into.as<const Y>(), x.as<const X>());
  });
}

}  // namespace nought::cuda
