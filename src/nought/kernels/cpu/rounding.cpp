#include "nought/kernels/rounding.h"

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "nought/kernels/check.h"
#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/cpu/parallel.h"
#include "nought/kernels/cpu/targets.h"
#include "nought/kernels/reference/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nought/kernels/cpu/rounding.cpp"
#include <hwy/foreach_target.h>

#include "nought/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

/// Adding 2^23 steps of the grid and taking them away again rounds to a whole number of steps, ties to even.
void round_fp8(const RoundFp8& op, double taken, int64_t begin, int64_t end) {
  visit(op.x.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const F32 d;
    const hn::RebindToSigned<F32> di;
    const Fp8Format format = Fp8Format::of(op.format);
    const auto scale = hn::Set(d, static_cast<float>(taken)), back = hn::Set(d, static_cast<float>(1 / taken));
    const auto largest = hn::Set(d, format.largest);
    const auto least = hn::Set(di, (format.least_exponent + 127) << 23);
    const auto to_steps = hn::Set(di, (23 - format.mantissa_bits) << 23), exponent_bits = hn::Set(di, 0x7F800000);
    const T* x = op.x.data<T>();
    T* y = op.y.data<T>();
    sweep_all<T>(d, begin, end, [=](int64_t i, auto access) HWY_ATTR {
      const auto loaded = access.load(d, x + i), a = hn::Abs(hn::Mul(loaded, scale));
      // Beyond the largest value nothing is rounded: 2^23 steps of 2^127 would be no number.
      const auto bounded = hn::Min(a, hn::Add(largest, largest));
      const auto exponent = hn::Max(hn::And(hn::BitCast(di, bounded), exponent_bits), least);
      const auto steps = hn::BitCast(d, hn::Add(exponent, to_steps));
      const auto rounded = hn::Min(hn::Sub(hn::Add(bounded, steps), steps), largest);
      const auto result = hn::CopySign(hn::Mul(rounded, back), loaded);
      access.store(d, hn::IfThenElse(hn::IsFinite(loaded), result, loaded), y + i);
    });
  });
}

/// The largest bits of |x|: their order is that of the values, and NaN is above all.
int32_t largest_bits(const Tensor& x_tensor, int64_t begin, int64_t end) {
  int32_t result = 0;
  visit(x_tensor.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const F32 d;
    const hn::RebindToSigned<F32> di;
    const T* x = x_tensor.data<T>();
    auto running = hn::Zero(di);
    sweep_all<T>(d, begin, end, [&](int64_t i, auto access) HWY_ATTR {
      running = hn::Max(running, hn::BitCast(di, hn::Abs(access.load(d, x + i))));
    });
    result = hn::GetLane(hn::MaxOfLanes(di, running));
  });
  return result;
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nought::cpu {

HWY_EXPORT(round_fp8);
HWY_EXPORT(largest_bits);

void run(const RoundStochastic& op) {
  check(op);
  visit_float(op.y.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (sizeof(T) == 2) {
      const float* x = op.x.data<float>();
      T* y = op.y.data<T>();
      parallel_elements(op.x.numel(), [&](int64_t begin, int64_t end) {
        Philox block{};
        for (int64_t i = begin; i < end; ++i) {
          const auto index = static_cast<uint64_t>(op.first + i);
          if (i == begin || index % 8 == 0) block = philox(op.key, index / 8);
          y[i] = round_stochastic(x[i], random_bits16(block, index), T());
        }
      });
    }
  });
}

void run(const RoundFp8& op) {
  if (op.x.dtype() == DType::f64) return reference::run(op);
  check(op);
  const double scale = taken_scale(op);
  parallel_elements(op.x.numel(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(round_fp8)(op, scale, begin, end);
  });
}

namespace {

/// The values of all codes of E4M3.
std::array<float, 256> e4m3_values() {
  std::array<float, 256> values{};
  for (int code = 0; code < 256; ++code) values[static_cast<size_t>(code)] = e4m3_value(static_cast<uint8_t>(code));
  return values;
}

}  // namespace

void run(const EncodeMxfp8& op) {
  check(op);
  const int64_t n = op.x.numel();
  visit_float(op.x.dtype(), [&](auto tag) {
    const auto* x = op.x.data<typename decltype(tag)::type>();
    uint8_t *codes = op.codes.data<uint8_t>(), *scales = op.scales.data<uint8_t>();
    parallel_rows(op.scales.numel(), kMxBlock, [=](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t first = block * kMxBlock;
        scales[block] = encode_mx(x + first, std::min(kMxBlock, n - first), codes + first);
      }
    });
  });
}

void run(const DecodeMxfp8& op) {
  if (op.x.dtype() == DType::f64) return reference::run(op);
  check(op);
  static const std::array<float, 256> kValues = e4m3_values();
  const int64_t n = op.x.numel();
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const uint8_t *codes = op.codes.data<uint8_t>(), *scales = op.scales.data<uint8_t>();
    T* x = op.x.data<T>();
    parallel_rows(op.scales.numel(), kMxBlock, [=](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const float scale =
            scales[block] == kMxNaN ? std::numeric_limits<float>::quiet_NaN() : power_of_two(scales[block] - 127);
        const int64_t last = std::min(n, (block + 1) * kMxBlock);
        for (int64_t i = block * kMxBlock; i < last; ++i) x[i] = static_cast<T>(kValues[codes[i]] * scale);
      }
    });
  });
}

void run(const AbsMax& op) {
  if (op.x.dtype() == DType::f64) return reference::run(op);
  check(op);
  constexpr int64_t kBlock = 65536;
  const int64_t n = op.x.numel(), blocks = ceil_div(n, kBlock);
  std::vector<int32_t> parts(static_cast<size_t>(blocks));
  parallel_rows(blocks, kBlock, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      parts[static_cast<size_t>(i)] =
          HWY_DYNAMIC_DISPATCH(largest_bits)(op.x, i * kBlock, std::min(n, (i + 1) * kBlock));
  });
  int32_t largest = op.accumulate ? std::bit_cast<int32_t>(std::abs(*op.out.data<float>())) : 0;
  for (const int32_t part : parts) largest = std::max(largest, part);
  *op.out.data<float>() = std::bit_cast<float>(largest);
}

}  // namespace nought::cpu
#endif
