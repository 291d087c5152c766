#include "nought/kernels/cpu/codes.h"

#include "nought/kernels/check.h"
#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/cpu/parallel.h"
#include "nought/kernels/cpu/scratch.h"
#include "nought/kernels/cpu/targets.h"
#include "nought/kernels/reference/reference.h"
#include "nought/kernels/rounding.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nought/kernels/cpu/codes.cpp"
#include <hwy/foreach_target.h>

#include "nought/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

/// A vector of codes as floats. kCodeBlock is a multiple of every vector's length.
template <bool kAdd, class T>
HWY_INLINE void decode_blocks(const int8_t* codes, const f16_t* scales, int64_t blocks, T* to) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t block = 0; block < blocks; ++block, codes += kCodeBlock, to += kCodeBlock) {
    const auto scale = hn::Set(d, float{scales[block]});
    for (int64_t i = 0; i < kCodeBlock; i += lanes) {
      const auto value = hn::Mul(load(d, codes + i), scale);
      store(d, kAdd ? hn::Add(load(d, to + i), value) : value, to + i);
    }
  }
}

void decode_to(const int8_t* codes, const f16_t* scales, int64_t blocks, DType dtype, void* to, bool add) {
  visit(dtype, [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    if (add) {
      decode_blocks<true>(codes, scales, blocks, static_cast<T*>(to));
    } else {
      decode_blocks<false>(codes, scales, blocks, static_cast<T*>(to));
    }
  });
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nought::cpu {
HWY_EXPORT(decode_to);

void decode(const Weight& weight, int64_t begin, int64_t count, DType dtype, void* to, bool add) {
  HWY_DYNAMIC_DISPATCH(decode_to)
  (weight.values.data<int8_t>() + begin, weight.scales.data<f16_t>() + begin / kCodeBlock, count / kCodeBlock, dtype,
   to, add);
}

void run(const QuantizeBlocks& op) {
  check(op);
  visit_float(op.x.dtype(), [&](auto tag) {
    const auto* x = op.x.data<typename decltype(tag)::type>();
    int8_t* codes = op.codes.data<int8_t>();
    f16_t* scales = op.scales.data<f16_t>();
    parallel_rows(op.scales.numel(), kCodeBlock, [=](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block)
        scales[block] = quantize_block(x + block * kCodeBlock, codes + block * kCodeBlock);
    });
  });
}

void run(const DequantizeBlocks& op) {
  if (op.x.dtype() == DType::f64) return reference::run(op);
  check(op);
  parallel_rows(op.weight.scales.numel(), kCodeBlock, [&](int64_t begin, int64_t end) {
    decode(op.weight, begin * kCodeBlock, (end - begin) * kCodeBlock, op.x.dtype(),
           op.x.raw() + begin * kCodeBlock * size_of(op.x.dtype()));
  });
}

}  // namespace nought::cpu
#endif
