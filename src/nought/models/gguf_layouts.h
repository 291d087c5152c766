// GgufPlace: where the elements of a parameter lie in llama.cpp's tensors, and how they are changed.
//
// Design goals: one description serves the writer and the reader. A parameter is cut into sheets of equal size, which
// lie behind each other in it. A sheet is copied along axes, of which each has steps in the parameter and in a tensor.
// Non-goals: names (gguf_places.h).
#pragma once

#include <string>
#include <vector>

#include "nought/kernels/ops/delta_rule.h"
#include "nought/tensor/shape.h"

namespace nought {

struct GgufAxis {
  int64_t extent = 1, from = 0, to = 0;  // its steps in elements of the parameter and of the tensor
};

/// Elements of a row of a tensor, behind each other, that lie `stride` apart in a sheet.
struct GgufLine {
  int64_t from = 0, to = 0, count = 0, stride = 1;
};

/// Some elements of every sheet, and the tensor that has them.
struct GgufPart {
  std::string tensor;
  Shape shape;                      // the whole tensor has it
  int64_t from = 0, to = 0;         // where it begins in a sheet, and that of the first sheet in the tensor
  int64_t step = 0;                 // from one sheet to the next in the tensor
  std::vector<GgufAxis> axes = {};  // by their steps in the tensor, the longest first; the last has steps of 1

  /// The lines of the first sheet, in the order of the tensor.
  std::vector<GgufLine> lines() const;
};

struct GgufPlace {
  std::vector<GgufPart> parts;
  int64_t sheet = 0;             // elements of a sheet; 0: the parameter is a part of one tensor as it is, from `to` on
  float offset = 0, factor = 1;  // the file has (x + offset) * factor
  bool negative_exp = false;     // or -exp(x)

  bool in_order() const { return sheet == 0; }
  const std::string& tensor() const { return parts.front().tensor; }
  float stored(float x) const;
  float loaded(float y) const;
};

/// A parameter that lies in a tensor as it is, from element `first` on.
GgufPlace in_order(const std::string& tensor, const Shape& shape, int64_t first = 0);
/// Rows (or values) of the halves of each head become neighbours.
GgufPlace rows_in_pairs(const std::string& tensor, const Shape& shape, int64_t head_dim);
/// Rows [head][q, k, v][head_dim] become [q, k, v][head][head_dim].
GgufPlace heads_apart(const std::string& tensor, const Shape& shape, int64_t heads, int64_t head_dim);
/// Rows of each matrix become columns.
GgufPlace turned(const std::string& tensor, const Shape& shape);
/// Columns of each matrix [.., 2F] become the rows of two tensors: by halves, or those with even and odd numbers.
/// Vectors [.., 2F] become two.
GgufPlace columns_apart(const std::string& first, const std::string& second, const Shape& shape, bool alternate,
                        bool matrices);
/// Rows of each head [own + value] of a matrix: those of keys become columns, those of values stay.
GgufPlace latent_apart(const std::string& keys, const std::string& values, const Shape& shape, int64_t heads,
                       int64_t own);
/// Rows [key head][q, k, v, z] become [q | k | v] and z.
GgufPlace key_heads_apart(const std::string& qkv, const std::string& z, const Shape& shape, const DeltaShape& delta);
/// Value heads [key head][which] become [which][key head]: rows of `head` each, behind `before` rows that stay.
GgufPlace value_heads_tiled(const std::string& tensor, const Shape& shape, const DeltaShape& delta, int64_t before,
                            int64_t head);
/// Moves columns of a matrix as value_heads_tiled() moves rows.
GgufPlace value_columns_tiled(const std::string& tensor, const Shape& shape, const DeltaShape& delta);

}  // namespace nought
