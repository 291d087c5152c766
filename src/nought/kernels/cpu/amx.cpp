#include "nought/kernels/cpu/amx.h"

#include <cstring>

#include "nought/base/error.h"
#include "nought/kernels/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "nought/kernels/cpu/intrinsics.h"
#endif

namespace nought::cpu {

#if defined(__x86_64__)

namespace {

/// Rows and bytes per row of the eight tiles (Intel SDM, TILE_CONFIG).
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

NOUGHT_AMX void set_up_tiles() {
  static constexpr TileConfig kConfig;
  _tile_loadconfig(&kConfig);
}
NOUGHT_AMX void release_tiles() { _tile_release(); }

constexpr int64_t kLeftTile = kLeftTiles / 2, kPairsOf16 = 2 * 16;  // elements of a tile, of one of its rows in B

/// Tiles 0 to 3 are sums, 4 and 5 rows of A, 6 and 7 columns of B: four loads for four products.
template <bool two_rows, bool two_columns>
NOUGHT_AMX void multiply_amx(const TileProduct& product) {
  constexpr long kLeftStride = 64;
  const long b_stride = product.b_stride * static_cast<long>(sizeof(bf16_t));
  const bf16_t *a = product.a, *b = product.b;
  // The loads are assembly that says nothing of the memory it reads: what was packed has to be there by now.
  asm volatile("" ::: "memory");
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t depth = 0; depth < product.depths; ++depth) {
    _tile_loadd(4, a, kLeftStride);
    _tile_loadd(6, b, b_stride);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (two_columns) {
      _tile_loadd(7, b + kPairsOf16, b_stride);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (two_rows) {
      _tile_loadd(5, a + kLeftTile, kLeftStride);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (two_columns) _tile_dpbf16ps(3, 5, 7);
    }
    a += kLeftTiles;
    b += kTileDepth / 2 * product.b_stride;
  }
  constexpr long kSumsStride = kTileColumns * static_cast<long>(sizeof(float));
  float *upper = product.sums, *lower = product.sums + 16 * kTileColumns;
  _tile_stored(0, upper, kSumsStride);
  if constexpr (two_columns) _tile_stored(1, upper + 16, kSumsStride);
  if constexpr (two_rows) {
    _tile_stored(2, lower, kSumsStride);
    if constexpr (two_columns) _tile_stored(3, lower + 16, kSumsStride);
  }
}

void multiply_amx(const TileProduct& product) {
  if (product.row_tiles == 2) {
    product.column_tiles == 2 ? multiply_amx<true, true>(product) : multiply_amx<true, false>(product);
  } else {
    product.column_tiles == 2 ? multiply_amx<false, true>(product) : multiply_amx<false, false>(product);
  }
}

/// Denormal factors and results count as zero, as in AMX.
class FlushDenormals {
 public:
  FlushDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | _MM_FLUSH_ZERO_ON | _MM_DENORMALS_ZERO_ON); }
  ~FlushDenormals() { _mm_setcsr(before_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  unsigned before_;
};

/// One row of a tile of sums += 32 elements of a times 16 columns of b, as TDPBF16PS adds (Intel SDM): even and odd
/// elements of k in a chain of fused multiply-adds each, from zero; then both together, and then to the sum.
NOUGHT_AVX512 void add_row(const bf16_t* a, const bf16_t* b, int64_t b_stride, float* sums) {
  const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  __m512 even = _mm512_setzero_ps(), odd = even;
  for (int64_t p = 0; p < kTileDepth; p += 2, b += b_stride) {
    const __m512i pairs = _mm512_loadu_si512(b);
    const __m512 low_b = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
    const __m512 high_b = _mm512_castsi512_ps(_mm512_and_si512(pairs, high));
    even = _mm512_fmadd_ps(_mm512_set1_ps(static_cast<float>(a[p])), low_b, even);
    odd = _mm512_fmadd_ps(_mm512_set1_ps(static_cast<float>(a[p + 1])), high_b, odd);
  }
  _mm512_storeu_ps(sums, _mm512_add_ps(_mm512_loadu_ps(sums), _mm512_add_ps(even, odd)));
}

void multiply_emulated(const TileProduct& product) {
  const FlushDenormals flush;
  for (int64_t row = 0; row < 16 * product.row_tiles; ++row)
    for (int64_t column = 0; column < 16 * product.column_tiles; column += 16) {
      float* sums = product.sums + row * kTileColumns + column;
      std::memset(sums, 0, 16 * sizeof(float));
      for (int64_t depth = 0; depth < product.depths; ++depth)
        add_row(product.a + depth * kLeftTiles + row * kTileDepth,
                product.b + depth * kTileDepth / 2 * product.b_stride + 2 * column, product.b_stride, sums);
    }
}

}  // namespace

bool may_use_amx() {
  static const bool may = [] {
    uint32_t a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
    const bool tiles = (d >> 24 & 1) != 0, bf16 = (d >> 22 & 1) != 0;
    constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM: Linux asks to be asked
    return tiles && bf16 && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return may;
}

// Small whole numbers, whose sums are exact in any order, different in every place.
bool amx_agrees_with_twin() {
  constexpr int64_t kDepths = 2;
  alignas(64) bf16_t a[kDepths * kLeftTiles], b[kDepths * kTileDepth * kTileColumns];
  for (int64_t i = 0; i < kDepths * kLeftTiles; ++i) {
    a[i] = bf16_t(static_cast<float>(i * 7 % 31 - 15));
    b[i] = bf16_t(static_cast<float>(i * 11 % 29 - 14));
  }
  alignas(64) float expected[kTileRows * kTileColumns], found[kTileRows * kTileColumns] = {};
  TileProduct product{.depths = kDepths, .a = a, .b = b, .b_stride = 2 * kTileColumns, .sums = expected};
  multiply_emulated(product);
  product.sums = found;
  TileSession(TileUnit::amx).multiply(product);
  return std::memcmp(expected, found, sizeof found) == 0;
}

TileUnit tile_unit() {
  switch (isa()) {
    case Isa::amx:
      return TileUnit::amx;
    case Isa::amx_emulated:
      return TileUnit::emulated;
    default:
      return TileUnit::none;
  }
}

TileSession::TileSession(TileUnit unit) : unit_(unit) {
  if (unit_ != TileUnit::amx) return;
  require<DeviceError>(may_use_amx(), "this CPU has no AMX tiles, or the system does not grant them");
  set_up_tiles();
}

TileSession::~TileSession() {
  if (unit_ == TileUnit::amx) release_tiles();
}

void TileSession::multiply(const TileProduct& product) const {
  unit_ == TileUnit::amx ? multiply_amx(product) : multiply_emulated(product);
}

#else

bool may_use_amx() { return false; }
bool amx_agrees_with_twin() { return false; }
TileUnit tile_unit() { return TileUnit::none; }
TileSession::TileSession(TileUnit unit) : unit_(unit) {}
TileSession::~TileSession() = default;
void TileSession::multiply(const TileProduct&) const { fail<DeviceError>("this CPU has no AMX tiles"); }

#endif

}  // namespace nought::cpu
