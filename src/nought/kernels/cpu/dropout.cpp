#include <array>

#include "nought/kernels/check.h"
#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/cpu/parallel.h"
#include "nought/kernels/cpu/targets.h"
#include "nought/kernels/reference/reference.h"
#include "nought/tensor/random.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nought/kernels/cpu/dropout.cpp"
#include <hwy/foreach_target.h>

#include "nought/kernels/cpu/philox-inl.h"
#include "nought/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

constexpr int64_t kColumns = 8;  // that share a block of Philox
constexpr int64_t kBlocks = 64;  // whose bits are made at once

/// The words of blocks [first, first + count) of a row, one behind the other: 16 bits for each column.
HWY_INLINE void random_words(uint64_t key, uint64_t row, int64_t first, int64_t count, uint32_t* words) {
  int64_t block = 0;
#if HWY_TARGET != HWY_SCALAR
  const U64 d;
  const hn::Rebind<uint32_t, U64> d32;
  const auto lower = [=](hn::Vec<U64> word)
                         HWY_ATTR { return hn::TruncateTo(d32, hn::And(word, hn::Set(d, 0xFFFFFFFFu))); };
  for (const auto lanes = static_cast<int64_t>(hn::Lanes(d)); block + lanes <= count; block += lanes) {
    const Words w = philox_lanes(key, hn::Iota(d, static_cast<uint64_t>(first + block)), row);
    hn::StoreInterleaved4(lower(w.w0), lower(w.w1), lower(w.w2), lower(w.w3), d32, words + 4 * block);
  }
#endif
  for (; block < count; ++block) {
    const Philox w = philox(key, static_cast<uint64_t>(first + block), row);
    std::copy(w.begin(), w.end(), words + 4 * block);
  }
}

/// y of `count` elements whose random bits these are.
template <class T>
HWY_INLINE void drop(const Dropout& op, const uint16_t* bits, const T* x, T* y, int64_t count) {
  const F32 d;
  const hn::Rebind<uint16_t, F32> d16;
  const hn::RebindToSigned<F32> di;
  const auto threshold = hn::Set(di, static_cast<int32_t>(op.threshold()));
  const auto scale = hn::Set(d, static_cast<float>(1 / (1 - op.probability)));
  const bool accumulate = op.accumulate;
  sweep(d, 0, count, [=](int64_t i, auto access) HWY_ATTR {
    // The bits lie in a buffer that is longer than what is read.
    const auto random = hn::PromoteTo(di, hn::LoadU(d16, bits + i));
    const auto value =
        hn::IfThenZeroElse(hn::RebindMask(d, hn::Lt(random, threshold)), hn::Mul(access.load(d, x + i), scale));
    access.store(d, accumulate ? hn::Add(access.load(d, y + i), value) : value, y + i);
  });
}

void dropout(const Dropout& op, int64_t begin, int64_t end) {
  visit(op.x.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const int64_t n = op.x.dim(-1), skipped = op.first_column % kColumns, first = op.first_column / kColumns;
    HWY_ALIGN std::array<uint32_t, 4 * kBlocks + 16> words;
    const auto* const bits = reinterpret_cast<const uint16_t*>(words.data());
    for (int64_t row = begin; row < end; ++row) {
      const auto key_of_row = static_cast<uint64_t>(op.rows.data<int64_t>()[row]);
      for (int64_t block = 0; block * kColumns < skipped + n; block += kBlocks) {
        const int64_t blocks = std::min(kBlocks, ceil_div(skipped + n, kColumns) - block);
        random_words(op.key, key_of_row, first + block, blocks, words.data());
        const int64_t from = block == 0 ? skipped : 0, to = std::min(blocks * kColumns, skipped + n - block * kColumns);
        const int64_t at = row * n + block * kColumns + from - skipped;
        drop(op, bits + from, op.x.data<T>() + at, op.y.data<T>() + at, to - from);
      }
    }
  });
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nought::cpu {

HWY_EXPORT(dropout);

void run(const Dropout& op) {
  if (op.x.dtype() == DType::f64) return reference::run(op);
  check(op);
  parallel_rows(op.x.rows(), op.x.dim(-1), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(dropout)(op, begin, end);
  });
}

}  // namespace nought::cpu
#endif
