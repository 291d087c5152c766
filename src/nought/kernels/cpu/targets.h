// Which instruction sets the CPU kernels are compiled for: AVX-512, AVX2, SSE4 and plain C++. Include before Highway.
//
// SSSE3 alone (2006) is left out: each further set lengthens every build.
#pragma once

#define HWY_DISABLED_TARGETS HWY_SSSE3
