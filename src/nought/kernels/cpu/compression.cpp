#include <cmath>
#include <vector>

#include "nought/kernels/check.h"
#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/cpu/parallel.h"
#include "nought/kernels/cpu/targets.h"
#include "nought/kernels/reference/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nought/kernels/cpu/compression.cpp"
#include <hwy/foreach_target.h>

#include "nought/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

/// Signs are packed 64 at a time: no vector has more lanes.
inline constexpr int64_t kWord = 64;

/// error += x; returns the sum of squares of what error is then.
double add_and_square(const OneBitEncode& op, Interval range) {
  const hn::ScalableTag<double> d64;
  const hn::Rebind<float, decltype(d64)> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const float* x = op.x.data<float>();
  float* error = op.error.data<float>();
  auto sums = hn::Zero(d64);
  int64_t i = range.begin;
  for (; i + lanes <= range.end; i += lanes) {
    const auto sum = hn::Add(hn::LoadU(d, error + i), hn::LoadU(d, x + i));
    hn::StoreU(sum, d, error + i);
    const auto wide = hn::PromoteTo(d64, sum);
    sums = hn::MulAdd(wide, wide, sums);
  }
  double squares = hn::GetLane(hn::SumOfLanes(d64, sums));
  for (; i < range.end; ++i) {
    error[i] += x[i];
    squares += static_cast<double>(error[i]) * error[i];
  }
  return squares;
}

/// The range begins at a multiple of kWord.
void encode_one_bit(const OneBitEncode& op, Interval range) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  float* error = op.error.data<float>();
  auto* bits = op.bits.data<uint8_t>();
  const float scale = op.scale.data<float>()[0];
  const auto up = hn::Set(d, scale), down = hn::Set(d, -scale), zero = hn::Zero(d);
  int64_t i = range.begin;
  for (; i + kWord <= range.end; i += kWord) {
    uint64_t word = 0;
    for (int64_t j = 0; j < kWord; j += lanes) {
      const auto u = hn::LoadU(d, error + i + j);
      const auto positive = hn::Ge(u, zero);
      uint8_t packed[8] = {};
      hn::StoreMaskBits(d, positive, packed);
      uint64_t part = 0;
      std::memcpy(&part, packed, sizeof part);
      word |= part << j;
      hn::StoreU(hn::Sub(u, hn::IfThenElse(positive, up, down)), d, error + i + j);
    }
    std::memcpy(bits + i / 8, &word, sizeof word);
  }
  for (; i < range.end; ++i) {
    if (i % 8 == 0) bits[i / 8] = 0;
    const bool positive = error[i] >= 0;
    if (positive) bits[i / 8] = static_cast<uint8_t>(bits[i / 8] | 1U << (i % 8));
    error[i] -= positive ? scale : -scale;
  }
}

/// The range begins at a multiple of kWord.
void decode_one_bit(const OneBitDecode& op, Interval range) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto* bits = op.bits.data<uint8_t>();
  float* y = op.y.data<float>();
  const auto scale = static_cast<float>(op.factor * static_cast<double>(op.scale.data<float>()[0]));
  const auto up = hn::Set(d, scale), down = hn::Set(d, -scale);
  int64_t i = range.begin;
  for (; i + kWord <= range.end; i += kWord) {
    uint64_t word = 0;
    std::memcpy(&word, bits + i / 8, sizeof word);
    for (int64_t j = 0; j < kWord; j += lanes) {
      const uint64_t part = word >> j;
      uint8_t packed[8];
      std::memcpy(packed, &part, sizeof part);
      auto value = hn::IfThenElse(hn::LoadMaskBits(d, packed), up, down);
      if (op.accumulate) value = hn::Add(hn::LoadU(d, y + i + j), value);
      hn::StoreU(value, d, y + i + j);
    }
  }
  for (; i < range.end; ++i) {
    const float value = (bits[i / 8] >> (i % 8) & 1) != 0 ? scale : -scale;
    y[i] = op.accumulate ? y[i] + value : value;
  }
}

void precondition(const Precondition& op, Interval range) {
  const F32 d;
  const float *x = op.x.data<float>(), *second = op.second_moment.data<float>();
  float* y = op.y.data<float>();
  const auto eps = hn::Set(d, static_cast<float>(op.eps)), zero = hn::Zero(d);
  sweep(d, range.begin, range.end, [=, multiply = op.multiply](int64_t i, auto access) HWY_ATTR {
    const auto v = access.load(d, second + i), value = access.load(d, x + i);
    const auto root = hn::Add(hn::Sqrt(v), eps);
    const auto result = multiply ? hn::Mul(value, root) : hn::Div(value, root);
    access.store(d, hn::IfThenElse(hn::Eq(v, zero), zero, result), y + i);
  });
}

float greatest_ratio(const GreatestRatio& op, Interval range) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const float *a = op.a.data<float>(), *b = op.b.data<float>(), eps = static_cast<float>(op.eps);
  const auto more = hn::Set(d, eps);
  auto greatest = hn::Zero(d);
  int64_t i = range.begin;
  for (; i + lanes <= range.end; i += lanes) {
    const auto over = hn::Add(hn::Sqrt(hn::LoadU(d, a + i)), more);
    greatest = hn::Max(greatest, hn::Div(over, hn::Add(hn::Sqrt(hn::LoadU(d, b + i)), more)));
  }
  float result = hn::GetLane(hn::MaxOfLanes(d, greatest));
  for (; i < range.end; ++i) result = std::max(result, (std::sqrt(a[i]) + eps) / (std::sqrt(b[i]) + eps));
  return result;
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nought::cpu {

HWY_EXPORT(add_and_square);
HWY_EXPORT(encode_one_bit);
HWY_EXPORT(decode_one_bit);
HWY_EXPORT(precondition);
HWY_EXPORT(greatest_ratio);

namespace {

/// f(interval) of each block of n elements, by block: what a sum or a maximum over them is made of in a fixed order.
template <class T, class F>
std::vector<T> by_block(int64_t n, const F& f) {
  constexpr int64_t kBlock = 65536;
  std::vector<T> parts(static_cast<size_t>(ceil_div(n, kBlock)));
  parallel_rows(static_cast<int64_t>(parts.size()), kBlock, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      parts[static_cast<size_t>(i)] = f(Interval{i * kBlock, std::min(n, (i + 1) * kBlock)});
  });
  return parts;
}

}  // namespace

void run(const OneBitEncode& op) {
  check(op);
  const int64_t n = op.x.numel();
  double squares = 0;
  for (const double part :
       by_block<double>(n, [&](Interval range) { return HWY_DYNAMIC_DISPATCH(add_and_square)(op, range); }))
    squares += part;
  op.scale.data<float>()[0] = static_cast<float>(std::sqrt(squares / static_cast<double>(n)));
  parallel_elements(n, [&](int64_t begin, int64_t end) { HWY_DYNAMIC_DISPATCH(encode_one_bit)(op, {begin, end}); });
}

void run(const OneBitDecode& op) {
  check(op);
  parallel_elements(op.y.numel(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(decode_one_bit)(op, {begin, end});
  });
}

void run(const Precondition& op) {
  check(op);
  parallel_elements(op.x.numel(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(precondition)(op, {begin, end});
  });
}

void run(const GreatestRatio& op) {
  check(op);
  float greatest = 0;
  for (const float part :
       by_block<float>(op.a.numel(), [&](Interval range) { return HWY_DYNAMIC_DISPATCH(greatest_ratio)(op, range); }))
    greatest = std::max(greatest, part);
  op.out.data<float>()[0] = greatest;
}

/// A few rows: what the products beside it take is far more.
void run(const Orthonormalize& op) { reference::run(op); }

}  // namespace nought::cpu
#endif
