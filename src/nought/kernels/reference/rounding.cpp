#include "nought/kernels/rounding.h"

#include "nought/kernels/check.h"
#include "nought/kernels/reference/loops.h"

namespace nought::reference {

void run(const RoundStochastic& op) {
  check(op);
  visit_float(op.y.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (sizeof(T) == 2) {
      for (int64_t i = 0; i < op.x.numel(); ++i)
        op.y.data<T>()[i] =
            round_stochastic(op.x.data<float>()[i], random_bits16(op.key, static_cast<uint64_t>(op.first + i)), T());
    }
  });
}

namespace {

/// In f64, where |x| * 2^k and its rounding to an integer are exact.
double on_grid(double x, const Fp8Format& format) {
  if (!std::isfinite(x) || x == 0) return x;
  const int exponent = std::max(std::ilogb(x), format.least_exponent);
  const double steps = std::ldexp(x, format.mantissa_bits - exponent);  // whole numbers are values of the format
  const double rounded = std::ldexp(std::nearbyint(steps), exponent - format.mantissa_bits);
  return std::copysign(std::min(std::abs(rounded), double{format.largest}), x);
}

}  // namespace

void run(const RoundFp8& op) {
  check(op);
  const Fp8Format format = Fp8Format::of(op.format);
  const double scale = taken_scale(op);
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* x = op.x.data<T>();
    for (int64_t i = 0; i < op.x.numel(); ++i) {
      const double value{accumulator_t<T>{x[i]}};
      op.y.data<T>()[i] = rounded<T>(on_grid(value * scale, format) / scale);
    }
  });
}

void run(const AbsMax& op) {
  check(op);
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    float largest = op.accumulate ? std::abs(*op.out.data<float>()) : 0;
    for (const T each : op.x.span<T>()) {
      const float a = std::abs(static_cast<float>(each));
      if (!(a <= largest)) largest = std::isnan(largest) ? largest : a;
    }
    *op.out.data<float>() = largest;
  });
}

}  // namespace nought::reference
