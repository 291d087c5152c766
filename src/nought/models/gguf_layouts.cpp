#include "nought/models/gguf_layouts.h"

#include <cmath>
#include <span>

namespace nought {

namespace {

void add_lines(std::span<const GgufAxis> axes, int64_t from, int64_t to, std::vector<GgufLine>& lines) {
  const GgufAxis& axis = axes.front();
  if (axes.size() == 1) return lines.push_back({from, to, axis.extent, axis.from});
  for (int64_t i = 0; i < axis.extent; ++i) add_lines(axes.subspan(1), from + i * axis.from, to + i * axis.to, lines);
}

int64_t row_of(const Shape& shape) { return shape.numel() / shape[0]; }

/// A shape whose last dimensions are these.
Shape with_last(const Shape& shape, std::initializer_list<int64_t> last) {
  Shape all;
  for (int axis = 0; axis < shape.rank() - static_cast<int>(last.size()); ++axis) all.push_back(shape[axis]);
  for (const int64_t extent : last) all.push_back(extent);
  return all;
}

/// [key head][which] of `size` elements each become [which][key head].
std::vector<GgufAxis> tiled(const DeltaShape& delta, int64_t size) {
  const int64_t each = delta.heads_of_key();
  return {{each, size, delta.key_heads * size}, {delta.key_heads, each * size, size}, {size, 1, 1}};
}

}  // namespace

std::vector<GgufLine> GgufPart::lines() const {
  std::vector<GgufLine> all;
  add_lines(axes, from, to, all);
  return all;
}

float GgufPlace::stored(float x) const { return negative_exp ? -std::exp(x) : (x + offset) * factor; }
float GgufPlace::loaded(float y) const { return negative_exp ? std::log(-y) : y / factor - offset; }

GgufPlace in_order(const std::string& tensor, const Shape& shape, int64_t first) {
  return {.parts = {{.tensor = tensor, .shape = shape, .to = first}}};
}

GgufPlace rows_in_pairs(const std::string& tensor, const Shape& shape, int64_t head_dim) {
  const int64_t row = row_of(shape), half = head_dim / 2, sheet = head_dim * row;
  return {.parts = {{.tensor = tensor,
                     .shape = shape,
                     .step = sheet,
                     .axes = {{half, row, 2 * row}, {2, half * row, row}, {row, 1, 1}}}},
          .sheet = sheet};
}

GgufPlace heads_apart(const std::string& tensor, const Shape& shape, int64_t heads, int64_t head_dim) {
  const int64_t head = head_dim * row_of(shape);
  return {.parts = {{.tensor = tensor, .shape = shape, .step = head, .axes = {{3, head, heads * head}, {head, 1, 1}}}},
          .sheet = 3 * head};
}

GgufPlace turned(const std::string& tensor, const Shape& shape) {
  const int64_t rows = shape[-2], columns = shape[-1], sheet = rows * columns;
  return {.parts = {{.tensor = tensor,
                     .shape = with_last(shape, {columns, rows}),
                     .step = sheet,
                     .axes = {{columns, 1, rows}, {rows, columns, 1}}}},
          .sheet = sheet};
}

GgufPlace columns_apart(const std::string& first, const std::string& second, const Shape& shape, bool alternate,
                        bool matrices) {
  const int64_t columns = shape[-1], rows = matrices ? shape[-2] : 1, half = columns / 2;
  const Shape target = matrices ? with_last(shape, {half, rows}) : with_last(shape, {half});
  const GgufAxis across{half, alternate ? 2 : 1, rows};
  GgufPart part{.tensor = first, .shape = target, .step = half * rows, .axes = {across}};
  if (matrices) part.axes.push_back({rows, columns, 1});
  GgufPart other = part;
  other.tensor = second, other.from = alternate ? 1 : half;
  return {.parts = {part, other}, .sheet = rows * columns};
}

GgufPlace latent_apart(const std::string& keys, const std::string& values, const Shape& shape, int64_t heads,
                       int64_t own) {
  const int64_t rank = shape[-1], value = shape[0] / heads - own;
  return {.parts = {{.tensor = keys,
                     .shape = {heads, rank, own},
                     .step = own * rank,
                     .axes = {{rank, 1, own}, {own, rank, 1}}},
                    {.tensor = values,
                     .shape = {heads, value, rank},
                     .from = own * rank,
                     .step = value * rank,
                     .axes = {{value * rank, 1, 1}}}},
          .sheet = (own + value) * rank};
}

GgufPlace key_heads_apart(const std::string& qkv, const std::string& z, const Shape& shape, const DeltaShape& delta) {
  const int64_t row = shape[-1], key = delta.key_dim * row, value = delta.heads_of_key() * delta.value_dim * row,
                keys = delta.keys() * row;
  const Shape target{delta.width(), row};
  const auto part = [&](int64_t from, int64_t to, int64_t size) {
    return GgufPart{.tensor = qkv, .shape = target, .from = from, .to = to, .step = size, .axes = {{size, 1, 1}}};
  };
  GgufPart gate = part(2 * key + value, 0, value);
  gate.tensor = z, gate.shape = {delta.values(), row};
  return {.parts = {part(0, 0, key), part(key, keys, key), part(2 * key, 2 * keys, value), gate},
          .sheet = 2 * key + 2 * value};
}

GgufPlace value_heads_tiled(const std::string& tensor, const Shape& shape, const DeltaShape& delta, int64_t before,
                            int64_t head) {
  const int64_t row = row_of(shape), start = before * row;
  GgufPlace place{.parts = {{.tensor = tensor, .shape = shape, .from = start, .to = start}}, .sheet = shape.numel()};
  place.parts.front().axes = tiled(delta, head * row);
  if (before > 0) place.parts.push_back({.tensor = tensor, .shape = shape, .axes = {{start, 1, 1}}});
  return place;
}

GgufPlace value_columns_tiled(const std::string& tensor, const Shape& shape, const DeltaShape& delta) {
  return {.parts = {{.tensor = tensor, .shape = shape, .step = shape[-1], .axes = tiled(delta, delta.value_dim)}},
          .sheet = shape[-1]};
}

}  // namespace nought
