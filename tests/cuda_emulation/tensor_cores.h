// The instructions of tensor cores that our kernels use, and the copies that feed them, as a host compiler reads them:
// cp.async, ldmatrix of four 8 x 8 matrices, and mma.m16n8k16. What a lane holds is what the PTX manual says: lane l
// has row l / 4 and columns 2 (l % 4) and the next of each 8 x 8 matrix.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "cuda_emulation/device_code.h"

namespace nought::emulation {

using Brought = std::array<uint64_t, kWarp>;

/// Two 16-bit elements in one register, the first in the lower half.
inline uint32_t pair_of(uint16_t low, uint16_t high) { return uint32_t{low} | uint32_t{high} << 16; }

/// Register m is of matrix m, whose rows begin at what the lanes [8 m, 8 m + 8) say. An element of `tile` is a row of
/// eight: Row has `values`.
template <bool kTransposed, class Row, class Tile>
void load_matrices(uint32_t (&registers)[4], const Tile& tile, int row, NOUGHT_CALLER) {
  Block& block = Block::current();
  const Brought rows = block.exchange(~0u, static_cast<uint64_t>(row), {file, line}, kOrdersNothing);
  const int outer = block.lane() / 4, inner = block.lane() % 4 * 2;
  for (int m = 0; m < 4; ++m) {
    const auto at = [&](int i) { return rows[static_cast<size_t>(8 * m + i)]; };
    if constexpr (kTransposed) {
      const Row first = tile[at(inner)], second = tile[at(inner + 1)];
      registers[m] = pair_of(first.values[outer], second.values[outer]);
    } else {
      const Row own = tile[at(outer)];
      registers[m] = pair_of(own.values[inner], own.values[inner + 1]);
    }
  }
}

/// An element comes when its thread waits for it, and others see it behind a barrier.
template <class Row>
void copy_async(const Shared<Row>& tile, int at, const void* from, bool exists, NOUGHT_CALLER) {
  if (exists) aligned(from, sizeof(Row), file, line);
  Block::current().begin_copy([=] {
    Row row{};
    if (exists) std::memcpy(&row, from, sizeof(Row));
    tile[at] = row;
  });
}
inline void commit_copies() { Block::current().end_group_of_copies(); }
template <int kLeft>
void wait_for_copies() {
  Block::current().make_copies(kLeft);
}

/// d += a b, in fp32: a is 16 x 16, b 16 x 8, d 16 x 8.
template <class T>
void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], NOUGHT_CALLER) {
  Block& block = Block::current();
  const auto both = [](uint32_t low, uint32_t high) { return uint64_t{low} | uint64_t{high} << 32; };
  const Where where{file, line};
  const Brought left =
      block.exchange(~0u, both(a[0], a[1]), where, kOrdersNothing);  // columns 0 to 7: rows 0 to 7, 8 to 15
  const Brought right = block.exchange(~0u, both(a[2], a[3]), where, kOrdersNothing);  // columns 8 to 15
  const Brought factors = block.exchange(~0u, both(b[0], b[1]), where, kOrdersNothing);
  const auto element = [](uint64_t registers, int number) {
    T value;
    value.bits = static_cast<uint16_t>(registers >> (16 * number));
    return static_cast<float>(value);
  };
  const int row = block.lane() / 4, column = block.lane() % 4 * 2;
  for (int i = 0; i < 4; ++i) {
    const int lower = i / 2 * 2, n = column + i % 2;  // of a's pairs, those of rows 8 to 15; the column of d
    float sum = d[i];
    for (int k = 0; k < 16; ++k) {
      const auto from_a = static_cast<size_t>(row * 4 + k % 8 / 2), from_b = static_cast<size_t>(n * 4 + k % 8 / 2);
      sum += element((k < 8 ? left : right)[from_a], lower + k % 2) * element(factors[from_b], k / 8 * 2 + k % 2);
    }
    d[i] = sum;
  }
}

}  // namespace nought::emulation
