// Philox of tensor/random.h for as many counters as a vector has lanes: compiled once per target.
#if defined(NOUGHT_KERNELS_CPU_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NOUGHT_KERNELS_CPU_PHILOX_INL_H_
#undef NOUGHT_KERNELS_CPU_PHILOX_INL_H_
#else
#define NOUGHT_KERNELS_CPU_PHILOX_INL_H_
#endif

#include <hwy/highway.h>

#include "nought/kernels/cpu/simd-inl.h"
#include "nought/kernels/cpu/targets.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

using U64 = hn::ScalableTag<uint64_t>;

/// Four words of philox for as many counters as there are lanes, each in the lower half of a lane; the upper half is
/// anything.
struct Words {
  hn::Vec<U64> w0, w1, w2, w3;
};

/// philox(key, counter, high) of tensor/random.h.
HWY_INLINE Words philox_lanes(uint64_t key, hn::Vec<U64> counter, uint64_t high) {
  const U64 d;
  const hn::Repartition<uint32_t, U64> d32;
  const auto product = [=](hn::Vec<U64> a, uint32_t factor)
                           HWY_ATTR { return hn::MulEven(hn::BitCast(d32, a), hn::BitCast(d32, hn::Set(d, factor))); };
  Words c{counter, hn::ShiftRight<32>(counter), hn::Set(d, high), hn::Set(d, high >> 32)};
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const hn::Vec<U64> p0 = product(c.w0, 0xD2511F53), p1 = product(c.w2, 0xCD9E8D57);
    c = {hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), c.w1), hn::Set(d, k0)), p1,
         hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), c.w3), hn::Set(d, k1)), p0};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

#endif

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
