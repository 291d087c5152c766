#include "nought/kernels/cpu/gemm_bf16.h"

#include "nought/base/error.h"
#include "nought/kernels/cpu/gemm_blocks.h"

#if defined(__x86_64__)
#include "nought/kernels/cpu/gemm_bf16_tile-inl.h"
#endif

namespace nought::cpu {

#if defined(__x86_64__)

namespace {

/// Panels of pairs, for both units.
struct Pairs {
  using Element = bf16_t;
  using Session = TileSession;

  static int64_t packed_panel(int64_t k, int64_t width) { return cpu::packed_panel(k, width); }
  template <int64_t width>
  static void pack(const bf16_t* from, int64_t stride, bool transposed, int64_t k, int64_t columns, bf16_t* to) {
    transposed ? pack_columns(from, stride, k, columns, width, to) : pack_rows(from, stride, k, columns, width, to);
  }

  /// A transposed A is packed, another one is read where it lies.
  struct Left {
    static int64_t left_elements(int64_t rows, int64_t k, bool transposed) {
      return transposed ? cpu::packed_panel(k, rows) : 0;
    }
  };
};

/// A tile of C is 8 rows of 3 vectors: 24 sums, so that a dot product never waits for the one before, and 11 loads for
/// 24 dot products. A panel of A stays in the first cache while panels of B stream past it from the second.
struct ByDots : Pairs {
  static constexpr int64_t kRows = 8, kColumns = 48;
  static constexpr int64_t kGroup = 128;  // stored rows of a transposed A are pages apart: long stretches of each

  static BlockShape shape(bool transpose_a) {
    return {768, (transpose_a ? 16 : 4) * kColumns, longest_dot_chunk(transpose_a)};
  }
  static constexpr auto pack_right = pack<kColumns>;

  template <class T>
  class Left : public Pairs::Left {
   public:
    Left(const bf16_t* a, int64_t stride, bool transposed, int64_t rows, int64_t k, bf16_t* memory)
        : a_(transposed ? memory : a), stride_(stride), k_(k), packed_(transposed) {
      if (transposed) pack_rows(a, stride, k, rows, kRows, memory);
    }
    void multiply(const TileSession& /*session*/, int64_t row, int64_t rows, const bf16_t* panel,
                  const TileOfSums<bf16_t>& tile) const {
      const LeftFactor factor = packed_ ? LeftFactor{a_ + cpu::packed_panel(k_, row), 2, 2 * kRows}
                                        : LeftFactor{a_ + row * stride_, stride_, 2};
      multiply_rows<kRows, kColumns>(factor, rows, k_, panel, tile);
    }

   private:
    const bf16_t* a_;
    int64_t stride_, k_;
    bool packed_;
  };
};

/// AMX is an order of magnitude faster than dot products, so packing weighs more: larger blocks.
struct ByTiles : Pairs {
  using Tiles = TilesLeft<kTileColumns>;
  static constexpr int64_t kRows = Tiles::kRows, kColumns = Tiles::kWidth;
  static constexpr int64_t kGroup = kRows;

  static BlockShape shape(bool transpose_a) {
    return transpose_a ? BlockShape{1024, 1024, 512} : BlockShape{1024, 512, 1024};
  }
  static constexpr auto pack_right = pack<kColumns>;

  template <class T>
  class Left : public Pairs::Left {
   public:
    Left(const bf16_t* a, int64_t stride, bool transposed, int64_t rows, int64_t k, bf16_t* memory)
        : tiles_(factor(a, stride, transposed, rows, k, memory), rows, k) {}
    void multiply(const TileSession& session, int64_t row, int64_t rows, const bf16_t* panel,
                  const TileOfSums<bf16_t>& tile) const {
      tiles_.multiply(session, row, rows, panel, tile);
    }

   private:
    static LeftFactor factor(const bf16_t* a, int64_t stride, bool transposed, int64_t rows, int64_t k,
                             bf16_t* memory) {
      if (!transposed) return {a, stride, 2};
      pack_rows(a, stride, k, rows, kRows, memory);
      return {memory, 2, 2 * kRows};
    }
    Tiles tiles_;
  };
};

}  // namespace

void multiply_pairs(const Product& product, TileUnit unit) {
  require_bf16_units();
  const auto session = [unit] { return TileSession(unit); };
  unit == TileUnit::none ? multiply_blocks<ByDots, bf16_t>(product, session)
                         : multiply_blocks<ByTiles, bf16_t>(product, session);
}

#else

void multiply_pairs(const Product&, TileUnit) { require_bf16_units(); }

#endif

}  // namespace nought::cpu
