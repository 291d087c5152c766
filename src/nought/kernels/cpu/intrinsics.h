// The intrinsics of x86-64, and the instruction sets that functions are compiled for one by one.
#pragma once

#include <algorithm>
#include <cstdint>

#include <immintrin.h>

#if !defined(__clang__)
// GCC 12 warns about values that its own intrinsics leave undefined on purpose (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#define NOUGHT_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl")))
#define NOUGHT_AVX512_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
/// What a lambda in an inner loop needs: what it captures stays in registers.
#define NOUGHT_AVX512_BF16_INLINE NOUGHT_AVX512_BF16 __attribute__((always_inline))
#define NOUGHT_AMX __attribute__((target("amx-tile,amx-bf16")))

namespace nought::cpu {

/// The first `count` of 16 lanes; none below 0, all above 16.
constexpr __mmask16 first_16(int64_t count) {
  return static_cast<__mmask16>((1u << std::clamp<int64_t>(count, 0, 16)) - 1);
}

}  // namespace nought::cpu
