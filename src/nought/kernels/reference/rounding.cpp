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

void run(const EncodeMxfp8& op) {
  check(op);
  const Fp8Format format = Fp8Format::of(Fp8::e4m3);
  visit_float(op.x.dtype(), [&](auto tag) {
    const auto* x = op.x.data<typename decltype(tag)::type>();
    for (int64_t begin = 0; begin < op.x.numel(); begin += kMxBlock) {
      const int64_t end = std::min(op.x.numel(), begin + kMxBlock);
      double largest = 0;
      for (int64_t i = begin; i < end; ++i) {
        const double a = std::abs(static_cast<double>(static_cast<float>(x[i])));
        if (!(a <= largest)) largest = std::isnan(largest) ? largest : a;
      }
      const bool finite = std::isfinite(largest);
      int exponent = -126;
      while (finite && std::ldexp(largest, -exponent) > double{format.largest}) ++exponent;
      op.scales.data<uint8_t>()[begin / kMxBlock] = finite ? static_cast<uint8_t>(exponent + 127) : kMxNaN;
      for (int64_t i = begin; i < end; ++i) {
        uint8_t& code = op.codes.data<uint8_t>()[i];
        code = 0;
        if (!finite) continue;
        const double value = on_grid(std::ldexp(static_cast<double>(static_cast<float>(x[i])), -exponent), format);
        while (e4m3_value(code) != std::abs(value)) ++code;
        code = std::min(code, largest_mx_code<typename decltype(tag)::type>(exponent));
        if (std::signbit(value)) code |= 128;
      }
    }
  });
}

void run(const DecodeMxfp8& op) {
  check(op);
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (int64_t i = 0; i < op.x.numel(); ++i) {
      const uint8_t scale = op.scales.data<uint8_t>()[i / kMxBlock];
      const double value = double{e4m3_value(op.codes.data<uint8_t>()[i])};
      op.x.data<T>()[i] =
          rounded<T>(scale == kMxNaN ? std::numeric_limits<double>::quiet_NaN() : std::ldexp(value, scale - 127));
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
