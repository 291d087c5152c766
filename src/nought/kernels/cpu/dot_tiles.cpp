#include "nought/kernels/cpu/dot_tiles.h"

#include <algorithm>

#include "nought/kernels/isa.h"

#if defined(__x86_64__)
#include "nought/kernels/cpu/gemm_bf16_tile-inl.h"
#endif

namespace nought::cpu {

#if defined(__x86_64__)

namespace {

/// 16 sums, and half as many loads.
using DotLeft = DotRowsLeft<4, kDotPanel>;
using AmxLeft = TilesLeft<kDotPanel>;

template <class Left>
void multiply_panels(const TileSession& session, const LeftFactor& a, const bf16_t* b, int64_t packed_k, int64_t k,
                     float* c, int64_t stride, int64_t rows, int64_t columns, bool accumulate) {
  const Left left(a, rows, k);
  for (int64_t begin = 0; begin < columns; begin += kDotPanel)
    for (int64_t row = 0; row < rows; row += Left::kRows) {
      float* at = c + row * stride + begin;
      const TileOfRoundedSums tile{.before = accumulate ? at : nullptr,
                                   .sums = at,
                                   .before_stride = stride,
                                   .stride = stride,
                                   .columns = std::min(kDotPanel, columns - begin)};
      left.multiply(session, row, std::min(Left::kRows, rows - row), b + packed_panel(packed_k, begin), tile);
    }
}

NOUGHT_AVX512_BF16 void round_in_hardware(const float* from, int64_t rows, int64_t columns, int64_t stride,
                                          bf16_t* to) {
  for (int64_t row = 0; row < rows; ++row, from += stride, to += stride)
    for (int64_t j = 0; j < columns; j += 16)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + j), round_to_bf16(_mm512_loadu_ps(from + j)));
}

}  // namespace

void multiply_dots(const TileSession& session, const LeftFactor& a, const bf16_t* b, int64_t packed_k, int64_t k,
                   float* c, int64_t stride, int64_t rows, int64_t columns, bool accumulate) {
  require_bf16_units();
  const auto multiply = session.unit() == TileUnit::none ? multiply_panels<DotLeft> : multiply_panels<AmxLeft>;
  multiply(session, a, b, packed_k, k, c, stride, rows, columns, accumulate);
}

void round_tile(const float* from, int64_t rows, int64_t columns, int64_t stride, bf16_t* to) {
  require_bf16_units();
  round_in_hardware(from, rows, columns, stride, to);
}

#else

void multiply_dots(const TileSession&, const LeftFactor&, const bf16_t*, int64_t, int64_t, float*, int64_t, int64_t,
                   int64_t, bool) {
  require_bf16_units();
}
void round_tile(const float*, int64_t, int64_t, int64_t, bf16_t*) { require_bf16_units(); }

#endif

}  // namespace nought::cpu
