// Which instruction sets the CPU kernels are compiled for: AVX-512, AVX2, SSE4 and plain C++. Include before Highway.
//
// SSSE3 alone (2006) is left out: each further set lengthens every build.
#pragma once

#define HWY_DISABLED_TARGETS HWY_SSSE3

#include "nought/kernels/isa.h"

namespace nought::cpu {

/// Whether fp32 is rounded to bf16 in one instruction (AVX512-BF16). The bits are the same without it.
inline const bool kConvertsToBf16 = cap_highway_at_start() >= Isa::avx512_bf16;

}  // namespace nought::cpu
