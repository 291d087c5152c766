#include "nought/kernels/cpu/dot_tiles.h"

#include <algorithm>

#include "nought/base/error.h"

#if defined(__x86_64__)
#include "nought/kernels/cpu/gemm_bf16_tile-inl.h"
#endif

namespace nought::cpu {

#if defined(__x86_64__)

namespace {

constexpr int kRows = 4, kVectors = 4;  // 16 sums, and half as many loads

template <int vectors>
NOUGHT_AVX512_BF16 void multiply_panel(const DotFactor& a, const bf16_t* b, int64_t k, float* c, int64_t stride,
                                       int64_t rows, int64_t columns, bool accumulate) {
  for (int64_t row = 0; row < rows; row += kRows) {
    float* at = c + row * stride;
    const TileOfSums tile{
        .before = accumulate ? at : nullptr, .sums = at, .before_stride = stride, .stride = stride, .columns = columns};
    with_count<kRows>(std::min<int64_t>(kRows, rows - row), [&](auto count) NOUGHT_AVX512_BF16_INLINE {
      multiply_tile<decltype(count)::value, vectors, kDotPanel>(k, a.data + row * a.row_step, a.row_step, a.pair_step,
                                                                b, tile);
    });
  }
}

}  // namespace

NOUGHT_AVX512_BF16 void multiply_dots(const DotFactor& a, const bf16_t* b, int64_t packed_k, int64_t k, float* c,
                                      int64_t stride, int64_t rows, int64_t columns, bool accumulate) {
  for (int64_t begin = 0; begin < columns; begin += kDotPanel) {
    const int64_t count = std::min(kDotPanel, columns - begin);
    const bf16_t* panel = b + packed_panel(packed_k, begin);
    with_count<kVectors>(ceil_div(count, 16), [&](auto vectors) {
      multiply_panel<decltype(vectors)::value>(a, panel, k, c + begin, stride, rows, count, accumulate);
    });
  }
}

NOUGHT_AVX512_BF16 void round_tile(const float* from, int64_t rows, int64_t columns, int64_t stride, bf16_t* to) {
  for (int64_t row = 0; row < rows; ++row, from += stride, to += stride)
    for (int64_t j = 0; j < columns; j += 16)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + j), round_to_bf16(_mm512_loadu_ps(from + j)));
}

#else

void multiply_dots(const DotFactor&, const bf16_t*, int64_t, int64_t, float*, int64_t, int64_t, int64_t, bool) {
  fail("this machine has no AVX512-BF16");
}
void round_tile(const float*, int64_t, int64_t, int64_t, bf16_t*) { fail("this machine has no AVX512-BF16"); }

#endif

}  // namespace nought::cpu
