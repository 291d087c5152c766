#include "nought/kernels/check.h"
#include "nought/kernels/reference/loops.h"

namespace nought::reference {

void run(const Add& op) {
  check(op);
  visit_float(op.out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Sum = accumulator_t<T>;
    const T *a = op.a.data<T>(), *b = op.b.data<T>();
    T* out = op.out.data<T>();
    for (int64_t i = 0; i < op.out.numel(); ++i) out[i] = static_cast<T>(Sum{a[i]} + Sum{b[i]});
  });
}

void run(const Scale& op) {
  check(op);
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Sum = accumulator_t<T>;
    const Sum factor = static_cast<Sum>(op.taken_factor());
    for (T& x : op.x.span<T>()) x = static_cast<T>(Sum{x} * factor);
  });
}

void run(const Fill& op) {
  check(op);
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (T& x : op.x.span<T>()) x = rounded<T>(op.value);
  });
}

void run(const Cast& op) {
  check(op);
  visit_floats(op.x.dtype(), op.y.dtype(), [&](auto from, auto to) {
    using X = typename decltype(from)::type;
    using Y = typename decltype(to)::type;
    const X* x = op.x.data<X>();
    Y* y = op.y.data<Y>();
    for (int64_t i = 0; i < op.x.numel(); ++i) y[i] = rounded<Y>(accumulator_t<X>{x[i]});
  });
}

void run(const AddTo& op) {
  check(op);
  visit_floats(op.x.dtype(), op.into.dtype(), [&](auto from, auto to) {
    using X = typename decltype(from)::type;
    using Y = typename decltype(to)::type;
    using Sum = std::common_type_t<accumulator_t<X>, accumulator_t<Y>>;
    const X* x = op.x.data<X>();
    Y* into = op.into.data<Y>();
    for (int64_t i = 0; i < op.x.numel(); ++i) into[i] = rounded<Y>(Sum{into[i]} + Sum{x[i]});
  });
}

}  // namespace nought::reference
