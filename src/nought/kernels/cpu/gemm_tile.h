// A tile of C as the micro-kernels see it: where its sums come from and go to.
#pragma once

#include <cstdint>

namespace nought::cpu {

/// T: the dtype of the bias, and of a rounded C.
template <class T>
struct TileOfSums {
  const float* before = nullptr;  // earlier sums, or what is added to; null: nothing
  float* sums = nullptr;          // f32; null: the tile is finished in `rounded`
  T* rounded = nullptr;
  const T* bias = nullptr;
  int64_t before_stride = 0, stride = 0;
  int64_t columns = 0;      // The columns of the tile that C has.
  bool accumulate = false;  // adds to `rounded`

  /// The tile's rows from another column on.
  TileOfSums from(int64_t column) const {
    const auto at = [column](auto* data) { return data == nullptr ? data : data + column; };
    TileOfSums tile = *this;
    tile.before = at(before), tile.sums = at(sums), tile.rounded = at(rounded), tile.bias = at(bias);
    tile.columns = columns - column;
    return tile;
  }
};

}  // namespace nought::cpu
