#include "nought/kernels/cpu/dot_tiles.h"

#include <algorithm>
#include <type_traits>

#include "nought/base/error.h"

#if defined(__x86_64__)
#include "nought/kernels/cpu/gemm_bf16_tile-inl.h"
#endif

namespace nought::cpu {

#if defined(__x86_64__)

namespace {

constexpr int64_t kRows = 4;  // with four vectors: 16 sums, and as many loads as half of them

template <int vectors>
NOUGHT_AVX512_BF16 void multiply_panel(const DotRows& a, const bf16_t* b, int64_t k, float* c, int64_t stride,
                                       int64_t rows, int64_t columns, bool accumulate) {
  for (int64_t row = 0; row < rows; row += kRows) {
    float* at = c + row * stride;
    const TileOfSums tile{
        .before = accumulate ? at : nullptr, .sums = at, .before_stride = stride, .stride = stride, .columns = columns};
    const bf16_t* left = a.data + row * a.row_step;
    switch (std::min(kRows, rows - row)) {
      case 1:
        multiply_tile<1, vectors, kDotPanel>(k, left, a.row_step, a.pair_step, b, tile);
        break;
      case 2:
        multiply_tile<2, vectors, kDotPanel>(k, left, a.row_step, a.pair_step, b, tile);
        break;
      case 3:
        multiply_tile<3, vectors, kDotPanel>(k, left, a.row_step, a.pair_step, b, tile);
        break;
      default:
        multiply_tile<4, vectors, kDotPanel>(k, left, a.row_step, a.pair_step, b, tile);
    }
  }
}

}  // namespace

void multiply_dots(const DotRows& a, const bf16_t* b, int64_t packed_k, int64_t k, float* c, int64_t stride,
                   int64_t rows, int64_t columns, bool accumulate) {
  for (int64_t begin = 0; begin < columns; begin += kDotPanel) {
    const int64_t count = std::min(kDotPanel, columns - begin);
    const bf16_t* panel = b + packed_panel(packed_k, begin);
    switch ((count + 15) / 16) {
      case 1:
        multiply_panel<1>(a, panel, k, c + begin, stride, rows, count, accumulate);
        break;
      case 2:
        multiply_panel<2>(a, panel, k, c + begin, stride, rows, count, accumulate);
        break;
      case 3:
        multiply_panel<3>(a, panel, k, c + begin, stride, rows, count, accumulate);
        break;
      default:
        multiply_panel<4>(a, panel, k, c + begin, stride, rows, count, accumulate);
    }
  }
}

NOUGHT_AVX512_BF16 void round_tile(const float* from, int64_t rows, int64_t columns, int64_t stride, bf16_t* to) {
  for (int64_t row = 0; row < rows; ++row, from += stride, to += stride)
    for (int64_t j = 0; j < columns; j += 16)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + j), round_to_bf16(_mm512_loadu_ps(from + j)));
}

#else

void multiply_dots(const DotRows&, const bf16_t*, int64_t, int64_t, float*, int64_t, int64_t, int64_t, bool) {
  fail("this machine has no AVX512-BF16");
}
void round_tile(const float*, int64_t, int64_t, int64_t, bf16_t*) { fail("this machine has no AVX512-BF16"); }

#endif

}  // namespace nought::cpu
