// How every large product is cut: blocks of C for threads, chunks of k, panels of B in the second cache, tiles of C in
// registers. A template over the micro-kernel (`By`), which says how operands are packed and tiles multiplied:
//
//   By::Element                 what panels of B consist of
//   By::kRows, By::kColumns     a tile of C
//   By::kGroup                  rows of A that are packed together if A is transposed, a multiple of kRows
//   By::shape(transpose_a)      the BlockShape
//   By::packed_panel(k, width)  elements of a packed panel
//   By::pack_right(from, stride, transposed, k, columns, to)
//   By::Session                 lives while a thread multiplies
//   By::Left<T>                 rows of A over a chunk: Left(a, stride, transposed, rows, k, memory), where memory has
//                               left_elements(rows, k) Elements, and multiply(session, row, rows, panel, tile)
#pragma once

#include <algorithm>

#include "nought/kernels/cpu/codes.h"
#include "nought/kernels/cpu/gemm.h"
#include "nought/kernels/cpu/gemm_chunks.h"
#include "nought/kernels/cpu/gemm_tile.h"
#include "nought/kernels/cpu/parallel.h"
#include "nought/kernels/cpu/scratch.h"

namespace nought::cpu {

/// A block of C is one thread's task. What it packs of B at a time, longest_chunk of k, fits the second cache.
struct BlockShape {
  int64_t rows, columns, longest_chunk;

  int64_t chunk(int64_t k) const { return chunk_of(k, longest_chunk); }
};

/// One block of C by one thread, chunk after chunk of k. T: the dtype of the inputs.
template <class By, class T>
class Block {
  using Element = typename By::Element;
  using Left = typename By::template Left<T>;
  static constexpr int64_t kRows = By::kRows, kColumns = By::kColumns;

 public:
  Block(const Product& product, const typename By::Session& session, Interval rows, Interval columns)
      : product_(product),
        session_(session),
        rows_(rows),
        columns_(columns),
        group_(product.transpose_a ? By::kGroup : kRows),
        chunk_(By::shape(product.transpose_a).chunk(product.sizes.k)),
        b_(bytes_for<Element>(By::packed_panel(chunk_, round_up(columns.size(), kColumns)))),
        a_(bytes_for<Element>(Left::left_elements(group_, chunk_, product.transpose_a))),
        sums_(bytes_for<float>(keeps_sums() ? rows.size() * columns.size() : 0)) {}

  void run() {
    for (int64_t begin = 0; begin < product_.sizes.k; begin += chunk_) {
      const Interval chunk{begin, std::min(product_.sizes.k, begin + chunk_)};
      pack_b(chunk);
      for (int64_t row = rows_.begin; row < rows_.end; row += group_)
        multiply_rows(chunk, {row, std::min(rows_.end, row + group_)});
    }
  }

 private:
  /// A rounded C cannot hold the sums between chunks.
  bool keeps_sums() const { return product_.output != DType::f32 && product_.sizes.k > chunk_; }

  void pack_b(Interval chunk) const {
    if (product_.codes != nullptr) return pack_codes(chunk);
    const auto* b = static_cast<const T*>(product_.b);
    const Interval outer = product_.transpose_b ? columns_ : chunk, inner = product_.transpose_b ? chunk : columns_;
    By::pack_right(b + outer.begin * product_.ldb + inner.begin, product_.ldb, product_.transpose_b, chunk.size(),
                   columns_.size(), b_.template data<Element>());
  }
  /// Codes are decoded, those of 8 bits in whole blocks, to dense rows, which are packed like others.
  void pack_codes(Interval chunk) const {
    const Interval outer = product_.transpose_b ? columns_ : chunk, inner = product_.transpose_b ? chunk : columns_;
    // Blocks of other codes need not begin with rows, or are decoded in parts.
    const int64_t whole = product_.codes->kind() == CodeKind::q8_0 ? kCodeBlock : 1;
    const int64_t begin = inner.begin / whole * whole, length = round_up(inner.end, whole) - begin;
    const Scratch rows(bytes_for<Element>(outer.size() * length));
    for (int64_t i = 0; i < outer.size(); ++i)
      decode(*product_.codes, (outer.begin + i) * product_.ldb + begin, length, dtype_of_v<Element>,
             rows.template data<Element>() + i * length);
    By::pack_right(rows.template data<Element>() + inner.begin - begin, length, product_.transpose_b, chunk.size(),
                   columns_.size(), b_.template data<Element>());
  }

  void multiply_rows(Interval chunk, Interval rows) const {
    const auto* a =
        static_cast<const T*>(product_.a) +
        (product_.transpose_a ? chunk.begin * product_.lda + rows.begin : rows.begin * product_.lda + chunk.begin);
    const Left left(a, product_.lda, product_.transpose_a, rows.size(), chunk.size(), a_.template data<Element>());
    for (int64_t row = rows.begin; row < rows.end; row += kRows)
      for (int64_t column = columns_.begin; column < columns_.end; column += kColumns)
        left.multiply(session_, row - rows.begin, std::min(kRows, rows.end - row),
                      b_.template data<Element>() + By::packed_panel(chunk.size(), column - columns_.begin),
                      tile_at(row, column, chunk));
  }

  TileOfSums<T> tile_at(int64_t row, int64_t column, Interval chunk) const {
    const bool first = chunk.begin == 0, last = chunk.end == product_.sizes.k;
    const int64_t at = row * product_.ldc + column;
    TileOfSums<T> tile{.stride = product_.ldc, .columns = std::min(kColumns, columns_.end - column)};
    if (last && product_.bias != nullptr) tile.bias = static_cast<const T*>(product_.bias) + column;
    if (product_.output == DType::f32) {
      tile.sums = static_cast<float*>(product_.c) + at;
      if (!first || product_.accumulate) tile.before = tile.sums, tile.before_stride = product_.ldc;
      return tile;
    }
    float* kept = keeps_sums()
                      ? sums_.template data<float>() + (row - rows_.begin) * columns_.size() + column - columns_.begin
                      : nullptr;
    if (!first) tile.before = kept, tile.before_stride = columns_.size();
    if (!last) {
      tile.sums = kept, tile.stride = columns_.size();
    } else {
      tile.rounded = static_cast<T*>(product_.c) + at;
      tile.accumulate = product_.accumulate;
    }
    return tile;
  }

  const Product& product_;
  const typename By::Session& session_;
  Interval rows_, columns_;
  int64_t group_, chunk_;
  Scratch b_, a_, sums_;
};

/// How C is cut: rows and columns of all blocks but the last of each.
struct BlockCut {
  int64_t height, width;
};

/// Cuts [m, n] into blocks of at most a shape's rows and columns, and of whole tiles, so that the busiest of `threads`
/// has the least to do: products, and what each block packs.
inline BlockCut cut_of(int64_t m, int64_t n, const BlockShape& shape, int64_t tile_rows, int64_t tile_columns,
                       int64_t threads) {
  constexpr int64_t kPacking = 64;  // an element of a row or column costs as much as so many products
  constexpr int64_t kMostEach = 8;  // blocks of a thread: more would only pack more
  BlockCut best{even_share(m, shape.rows, tile_rows), even_share(n, shape.columns, tile_columns)};
  const auto cost_of = [&](const BlockCut& cut) {
    const int64_t blocks = ceil_div(m, cut.height) * ceil_div(n, cut.width);
    return ceil_div(blocks, threads) * (cut.height * cut.width + kPacking * (cut.height + cut.width));
  };
  int64_t least = cost_of(best);
  const int64_t fewest_down = ceil_div(m, shape.rows), fewest_across = ceil_div(n, shape.columns);
  const int64_t most = std::max(kMostEach * threads, fewest_down * fewest_across);
  for (int64_t down = fewest_down; down * fewest_across <= most && down <= ceil_div(m, tile_rows); ++down)
    for (int64_t across = fewest_across; down * across <= most && across <= ceil_div(n, tile_columns); ++across) {
      const BlockCut cut{round_up(ceil_div(m, down), tile_rows), round_up(ceil_div(n, across), tile_columns)};
      const int64_t cost = cost_of(cut);
      if (cost < least) best = cut, least = cost;
    }
  return best;
}

/// make_session() makes a By::Session on the thread that calls it.
template <class By, class T, class MakeSession>
void multiply_blocks(const Product& product, const MakeSession& make_session) {
  const auto [m, n, k] = product.sizes;
  const bool is_shared = m * n * k >= kParallelWork * 64;
  const BlockCut cut =
      cut_of(m, n, By::shape(product.transpose_a), By::kRows, By::kColumns, is_shared ? team_size() : 1);
  const int64_t height = cut.height, width = cut.width, across = ceil_div(n, width);
  const int64_t tasks = ceil_div(m, height) * across;
  const auto run_task = [&product, &make_session, height, width, across](int64_t task) {
    const int64_t row = task / across * height, column = task % across * width;
    const typename By::Session session = make_session();
    Block<By, T>(product, session, {row, std::min(product.sizes.m, row + height)},
                 {column, std::min(product.sizes.n, column + width)})
        .run();
  };
  // A thread that falls behind takes fewer blocks; a block's bits are the same wherever it runs.
#pragma omp parallel for schedule(dynamic) if (tasks > 1 && is_shared)
  for (int64_t task = 0; task < tasks; ++task) run_task(task);
}

}  // namespace nought::cpu
