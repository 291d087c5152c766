// The AMX tiles of the CPU: whether this process may use them, a thread's session with them, and their twin in plain
// arithmetic. Tests use the twin where there is no AMX. AMX computes nothing before a product on it had the twin's
// bits.
#pragma once

#include <cstdint>

#include "nought/tensor/dtype.h"

namespace nought::cpu {

/// What products of tiles are computed on.
enum class TileUnit { none, amx, emulated };

/// Whether the CPU has AMX with bf16 and the operating system grants this process the state of its tiles.
bool may_use_amx();
/// Whether a product on AMX has the bits of its twin. Only where may_use_amx() and the CPU has AVX-512.
bool amx_agrees_with_twin();

/// What isa() computes products of tiles on.
TileUnit tile_unit();

/// One call computes kTileRows rows and kTileColumns columns of C, as two by two tiles, and takes kTileDepth of k at a
/// time.
inline constexpr int64_t kTileRows = 32, kTileColumns = 32, kTileDepth = 32;
/// Elements of the left factor for kTileDepth of k: two tiles of [16 rows][kTileDepth].
inline constexpr int64_t kLeftTiles = kTileRows * kTileDepth;

/// sums: [kTileRows][kTileColumns] f32 = a times b over `depths` times kTileDepth of k.
struct TileProduct {
  int64_t depths = 0;
  const bf16_t* a = nullptr;  // kLeftTiles for each depth
  const bf16_t* b = nullptr;  // pairs along k: a row of pairs begins b_stride elements behind the one before
  int64_t b_stride = 0;
  int row_tiles = 2, column_tiles = 2;  // Each has 16 rows or columns. Sums beyond them are not written.
  float* sums = nullptr;                // Aligned to 64 bytes.
};

/// While it lives, the calling thread's tiles are set up for multiply(). Sessions must not be nested.
class TileSession {
 public:
  explicit TileSession(TileUnit unit);
  ~TileSession();
  TileSession(const TileSession&) = delete;
  TileSession& operator=(const TileSession&) = delete;

  TileUnit unit() const { return unit_; }
  /// The unit must not be TileUnit::none.
  void multiply(const TileProduct& product) const;

 private:
  TileUnit unit_;
};

}  // namespace nought::cpu
