#include "nought/kernels/cpu/dot_tiles.h"

#include <algorithm>

#include "nought/kernels/isa.h"

#if defined(__x86_64__)
#include "nought/kernels/cpu/gemm_bf16_tile-inl.h"
#endif

namespace nought::cpu {

#if defined(__x86_64__)

void multiply_tiles(const TileSession& session, const LeftFactor& a, const RightFactor& b, int64_t k,
                    const FloatTile& c, int64_t rows, int64_t columns, bool accumulate) {
  require_bf16_units();
  using PackedLeft = TilesLeft<kDotPanel>;
  const PackedLeft left(a, rows, k);
  for (int64_t begin = 0; begin < columns; begin += kDotPanel)
    for (int64_t row = 0; row < rows; row += PackedLeft::kRows) {
      float* at = c.data + row * c.stride + begin;
      const TileOfRoundedSums tile{.before = accumulate ? at : nullptr,
                                   .sums = at,
                                   .before_stride = c.stride,
                                   .stride = c.stride,
                                   .columns = std::min(kDotPanel, columns - begin)};
      left.multiply(session, row, std::min(PackedLeft::kRows, rows - row), b.data + begin / kDotPanel * b.panel, tile);
    }
}

#else

void multiply_tiles(const TileSession&, const LeftFactor&, const RightFactor&, int64_t, const FloatTile&, int64_t,
                    int64_t, bool) {
  require_bf16_units();
}

#endif

}  // namespace nought::cpu
