#include "nought/models/packed_tensor.h"

#include <algorithm>

#include "nought/io/convert.h"

namespace nought {

namespace {

constexpr int64_t kTileElements = int64_t{1} << 18;

}  // namespace

std::vector<PackedTensor::Rectangle> PackedTensor::rectangles(std::span<const Interval> elements) const {
  std::vector<Rectangle> all;
  const auto add = [&](Rectangle next) {
    if (!all.empty() && all.back().columns == next.columns && all.back().rows.end == next.rows.begin) {
      all.back().rows.end = next.rows.end;
    } else {
      all.push_back(next);
    }
  };
  for (const Interval& interval : elements)
    for (int64_t begin = interval.begin; begin < interval.end;) {
      const int64_t row = begin / width(), column = begin % width();
      if (column == 0 && interval.end - begin >= width()) {
        const int64_t end_row = interval.end / width();
        add({{row, end_row}, {0, width()}});
        begin = end_row * width();
      } else {
        const int64_t end = std::min(interval.end, (row + 1) * width());
        add({{row, row + 1}, {column, column + end - begin}});
        begin = end;
      }
    }
  return all;
}

void PackedTensor::decode_transposed(Rectangle tile, std::vector<float>& values) const {
  const int64_t in = shape[-2], out = shape[-1], which = tile.rows.begin / in;
  const Interval of_in{tile.rows.begin - which * in, tile.rows.end - which * in};
  std::vector<float> turned(values.size());
  matrix.decode({which * out + tile.columns.begin, which * out + tile.columns.end}, of_in, turned.data());
  const int64_t height = tile.rows.size(), width = tile.columns.size();
  for (int64_t i = 0; i < width; ++i)
    for (int64_t j = 0; j < height; ++j)
      values[static_cast<size_t>(j * width + i)] = turned[static_cast<size_t>(i * height + j)];
}

void PackedTensor::decode(Rectangle tile, std::vector<float>& values) const {
  values.resize(static_cast<size_t>(tile.rows.size() * tile.columns.size()));
  if (transposed) {
    decode_transposed(tile, values);
  } else if (rows.empty()) {
    matrix.decode({first_row + tile.rows.begin, first_row + tile.rows.end}, tile.columns, values.data());
  } else {
    float* target = values.data();
    for (int64_t i = tile.rows.begin; i < tile.rows.end; ++i, target += tile.columns.size()) {
      const int64_t row = rows[static_cast<size_t>(i)];
      matrix.decode({row, row + 1}, tile.columns, target);
    }
  }
  if (offset == 0 && factor == 1) return;
  for (float& value : values) value = value / factor - offset;
}

void PackedTensor::read(std::span<const Interval> elements, const Tensor& destination) const {
  std::vector<float> values;
  std::byte* target = destination.raw();
  for (const Rectangle& all : rectangles(elements)) {
    const int64_t most = std::max<int64_t>(1, kTileElements / all.columns.size());
    for (int64_t row = all.rows.begin; row < all.rows.end;) {
      int64_t end = std::min(all.rows.end, row + most);
      if (transposed) end = std::min(end, (row / shape[-2] + 1) * shape[-2]);  // one matrix at a time
      decode({{row, end}, all.columns}, values);
      convert_elements(DType::f32, reinterpret_cast<const std::byte*>(values.data()), destination.dtype(), target,
                       std::ssize(values));
      target += std::ssize(values) * size_of(destination.dtype());
      row = end;
    }
  }
}

}  // namespace nought
