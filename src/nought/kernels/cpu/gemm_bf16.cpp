#include "nought/kernels/cpu/gemm_bf16.h"

#include <algorithm>

#include "nought/base/error.h"
#include "nought/kernels/cpu/gemm_bf16_pack.h"
#include "nought/kernels/cpu/parallel.h"
#include "nought/kernels/cpu/scratch.h"

#if defined(__x86_64__)
#include "nought/kernels/cpu/gemm_bf16_tile-inl.h"
#endif

namespace nought::cpu {

#if defined(__x86_64__)

namespace {

constexpr int64_t kPackedRows = 32;  // of a transposed A: a cache line of each stored row

/// `extent` cut into the fewest intervals of at most `most`, nearly equal multiples of `grain`.
constexpr int64_t even_share(int64_t extent, int64_t most, int64_t grain) {
  return round_up(ceil_div(extent, ceil_div(extent, most)), grain);
}

/// A block of C is one thread's task. What it packs of B at a time, longest_chunk of k, fits the second cache.
struct BlockShape {
  int64_t rows, columns, longest_chunk;

  /// Elements of k in all chunks but the last: nearly equal.
  int64_t chunk(int64_t k) const { return even_share(k, longest_chunk, kTileDepth); }
};

/// A tile of C is 8 rows of 3 vectors: 24 sums, so that a dot product never waits for the one before, and 11 loads for
/// 24 dot products. A panel of A stays in the first cache while panels of B stream past it from the second.
struct ByDots {
  using Left = DotRowsLeft<8, 48>;
  // A transposed A is packed once for each block of B: wide blocks, for which k is cut shorter.
  static BlockShape shape(bool transpose_a) {
    return transpose_a ? BlockShape{512, 8 * Left::kWidth, 512} : BlockShape{512, 4 * Left::kWidth, 1024};
  }
};

/// AMX is an order of magnitude faster than dot products, so packing weighs more: larger blocks.
struct ByTiles {
  using Left = TilesLeft<kTileColumns>;
  static BlockShape shape(bool transpose_a) {
    return transpose_a ? BlockShape{1024, 1024, 512} : BlockShape{1024, 512, 1024};
  }
};

/// One block of C by one thread, chunk after chunk of k.
template <class By>
class Block {
  using Left = typename By::Left;
  static constexpr int64_t kRows = Left::kRows, kColumns = Left::kWidth;

 public:
  Block(const Bf16Product& product, TileUnit unit, Interval rows, Interval columns)
      : product_(product),
        session_(unit),
        rows_(rows),
        columns_(columns),
        chunk_(By::shape(product.transpose_a).chunk(product.sizes.k)),
        b_(bytes_for<bf16_t>(packed_panel(chunk_, round_up(columns.size(), kColumns)))),
        a_(bytes_for<bf16_t>(product.transpose_a ? packed_panel(chunk_, kPackedRows) : 0)),
        sums_(bytes_for<float>(keeps_sums() ? rows.size() * columns.size() : 0)) {}

  void run() {
    for (int64_t begin = 0; begin < product_.sizes.k; begin += chunk_) {
      const Interval chunk{begin, std::min(product_.sizes.k, begin + chunk_)};
      pack_b(chunk);
      const int64_t step = product_.transpose_a ? kPackedRows : kRows;
      for (int64_t row = rows_.begin; row < rows_.end; row += step)
        multiply_rows(chunk, {row, std::min(rows_.end, row + step)});
    }
  }

 private:
  /// A rounded C cannot hold the sums between chunks.
  bool keeps_sums() const { return product_.output != DType::f32 && product_.sizes.k > chunk_; }

  void pack_b(Interval chunk) const {
    const int64_t ldb = product_.ldb;
    if (product_.transpose_b) {
      pack_columns(product_.b + columns_.begin * ldb + chunk.begin, ldb, chunk.size(), columns_.size(), kColumns,
                   b_.data<bf16_t>());
    } else {
      pack_rows(product_.b + chunk.begin * ldb + columns_.begin, ldb, chunk.size(), columns_.size(), kColumns,
                b_.data<bf16_t>());
    }
  }
  bf16_t* panel(Interval chunk, int64_t column) const {
    return b_.data<bf16_t>() + packed_panel(chunk.size(), column - columns_.begin);
  }

  void multiply_rows(Interval chunk, Interval rows) const {
    if (product_.transpose_a)
      pack_rows(product_.a + chunk.begin * product_.lda + rows.begin, product_.lda, chunk.size(), rows.size(), kRows,
                a_.data<bf16_t>());
    for (int64_t row = rows.begin; row < rows.end; row += kRows) {
      const int64_t count = std::min(kRows, rows.end - row);
      const Left left(left_factor(chunk, rows.begin, row), count, chunk.size());
      for (int64_t column = columns_.begin; column < columns_.end; column += kColumns)
        left.multiply(session_, 0, count, panel(chunk, column), tile_at(row, column, chunk));
    }
  }
  /// packed: the first of the rows that are packed together.
  LeftFactor left_factor(Interval chunk, int64_t packed, int64_t row) const {
    if (!product_.transpose_a) return {product_.a + row * product_.lda + chunk.begin, product_.lda, 2};
    return {a_.data<bf16_t>() + packed_panel(chunk.size(), row - packed), 2, 2 * kRows};
  }

  TileOfSums tile_at(int64_t row, int64_t column, Interval chunk) const {
    const bool first = chunk.begin == 0, last = chunk.end == product_.sizes.k;
    const int64_t at = row * product_.ldc + column;
    TileOfSums tile{.stride = product_.ldc, .columns = std::min(kColumns, columns_.end - column)};
    if (last && product_.bias != nullptr) tile.bias = product_.bias + column;
    if (product_.output == DType::f32) {
      tile.sums = static_cast<float*>(product_.c) + at;
      if (!first || product_.accumulate) tile.before = tile.sums, tile.before_stride = product_.ldc;
      return tile;
    }
    float* kept =
        keeps_sums() ? sums_.data<float>() + (row - rows_.begin) * columns_.size() + column - columns_.begin : nullptr;
    if (!first) tile.before = kept, tile.before_stride = columns_.size();
    if (!last) {
      tile.sums = kept, tile.stride = columns_.size();
    } else {
      tile.rounded = static_cast<bf16_t*>(product_.c) + at;
      tile.accumulate = product_.accumulate;
    }
    return tile;
  }

  const Bf16Product& product_;
  const TileSession session_;
  Interval rows_, columns_;
  int64_t chunk_;
  Scratch b_, a_, sums_;
};

/// Columns of a block of C: as many as the shape has, but fewer where that gives every thread of a team as much to do.
int64_t block_columns(int64_t n, int64_t most, int64_t panel, int64_t down) {
  const int64_t team = team_size(), fewest = ceil_div(n, most);
  for (int64_t across = fewest; down * (across - fewest) < team; ++across) {
    const int64_t width = round_up(ceil_div(n, across), panel);
    if (width < 2 * panel) break;
    if (down * ceil_div(n, width) % team == 0) return width;
  }
  return even_share(n, most, panel);
}

template <class By>
void multiply_by(const Bf16Product& product, TileUnit unit) {
  const auto [m, n, k] = product.sizes;
  const BlockShape shape = By::shape(product.transpose_a);
  const int64_t height = even_share(m, shape.rows, By::Left::kRows), down = ceil_div(m, height);
  const int64_t width = block_columns(n, shape.columns, By::Left::kWidth, down), across = ceil_div(n, width);
  const int64_t tasks = down * across;
  const auto run_task = [&product, unit, height, width, across](int64_t task) {
    const int64_t row = task / across * height, column = task % across * width;
    Block<By>(product, unit, {row, std::min(product.sizes.m, row + height)},
              {column, std::min(product.sizes.n, column + width)})
        .run();
  };
  // A thread that falls behind takes fewer blocks; a block's bits are the same wherever it runs.
#pragma omp parallel for schedule(dynamic) if (tasks > 1 && m * n * k >= kParallelWork * 64)
  for (int64_t task = 0; task < tasks; ++task) run_task(task);
}

}  // namespace

void multiply(const Bf16Product& product, TileUnit unit) {
  require_bf16_units();
  unit == TileUnit::none ? multiply_by<ByDots>(product, unit) : multiply_by<ByTiles>(product, unit);
}

#else

void multiply(const Bf16Product&, TileUnit) { require_bf16_units(); }

#endif

}  // namespace nought::cpu
