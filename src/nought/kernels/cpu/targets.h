// Which instruction sets the CPU kernels are compiled for: AVX-512, AVX2, SSE4 and plain C++. Include before Highway.
//
// SSSE3 alone (2006) is left out: each further set lengthens every build.
#pragma once

#define HWY_DISABLED_TARGETS HWY_SSSE3

namespace nought::cpu {

/// Whether this CPU rounds fp32 to bf16 in one instruction (AVX512-BF16).
#if defined(__x86_64__)
inline const bool kConvertsToBf16 = __builtin_cpu_supports("avx512bf16") != 0;
#else
inline constexpr bool kConvertsToBf16 = false;
#endif

}  // namespace nought::cpu
