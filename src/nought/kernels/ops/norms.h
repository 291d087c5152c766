// Norms of rows and their gradients.
#pragma once

#include "nought/kernels/operation.h"

namespace nought {

/// y = x * rstd * (weight + weight_offset), rstd = 1 / sqrt(mean(x^2) + eps). x, y: [rows, n], weight: [n],
/// rstd: [rows] f32 (f64 for f64). arXiv 1910.07467; offset 1 is Gemma's. squares: [rows], dtype of rstd, optional: the
/// sums of x^2 over rows of `width` elements, of which x has a part; the mean is over these.
struct RmsNorm {
  Tensor x, weight, y, rstd;
  double eps = 1e-6;
  double weight_offset = 0;
  Tensor squares = {};
  int64_t width = 0;  // with squares

  template <class V>
  void visit(V& v) const {
    v("x", x, kReads);
    v("weight", weight, kReads);
    v("squares", squares, kReads.if_defined());
    v("y", y, kWrites);
    v("rstd", rstd, kWrites);
    v("eps", eps);
    v("weight_offset", weight_offset);
    v("width", width);
  }
};

/// dx [+=] and d_weight [+=]. d_weight has weight's dtype or f32. products: [rows], dtype of rstd, optional: the sums
/// of x * dy * (weight + weight_offset) over rows of `width` elements, of which x has a part.
struct RmsNormBackward {
  Tensor x, weight, rstd, dy, dx, d_weight;
  double weight_offset = 0;
  bool accumulate_x = false, accumulate_weight = false;
  Tensor products = {};
  int64_t width = 0;  // with products

  template <class V>
  void visit(V& v) const {
    v("x", x, kReads);
    v("weight", weight, kReads);
    v("rstd", rstd, kReads);
    v("dy", dy, kReads);
    v("products", products, kReads.if_defined());
    v("dx", dx, kWrites.adding(accumulate_x));
    v("d_weight", d_weight, kWrites.adding(accumulate_weight));
    v("weight_offset", weight_offset);
    v("accumulate_x", accumulate_x);
    v("accumulate_weight", accumulate_weight);
    v("width", width);
  }
};

/// y = (x - mean) * rstd * weight + bias. mean, rstd: [rows] f32 (f64 for f64). arXiv 1607.06450.
struct LayerNorm {
  Tensor x, weight, bias, y, mean, rstd;
  double eps = 1e-5;

  template <class V>
  void visit(V& v) const {
    v("x", x, kReads);
    v("weight", weight, kReads);
    v("bias", bias, kReads);
    v("y", y, kWrites);
    v("mean", mean, kWrites);
    v("rstd", rstd, kWrites);
    v("eps", eps);
  }
};

/// dx [+=], d_weight [+=] and d_bias [+=]; accumulate_weight is for the last two.
struct LayerNormBackward {
  Tensor x, weight, mean, rstd, dy, dx, d_weight, d_bias;
  bool accumulate_x = false, accumulate_weight = false;

  template <class V>
  void visit(V& v) const {
    v("x", x, kReads);
    v("weight", weight, kReads);
    v("mean", mean, kReads);
    v("rstd", rstd, kReads);
    v("dy", dy, kReads);
    v("dx", dx, kWrites.adding(accumulate_x));
    v("d_weight", d_weight, kWrites.adding(accumulate_weight));
    v("d_bias", d_bias, kWrites.adding(accumulate_weight));
    v("accumulate_x", accumulate_x);
    v("accumulate_weight", accumulate_weight);
  }
};

}  // namespace nought
