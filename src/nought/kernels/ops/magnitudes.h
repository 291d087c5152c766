// What a decomposed adapter needs (DoRA, arXiv 2402.09353): factors of columns, and norms of a matrix and a product of
// low rank, whose sum is never formed.
#pragma once

#include "nought/kernels/operation.h"

namespace nought {

/// y [+]= x * (factors - offset) + bias, by columns. x, y: [rows, n] float, y may be x; factors: [n] f32 (f64 for f64);
/// bias: [n], dtype of x, optional.
struct ScaleColumns {
  Tensor x, factors, y, bias = {};
  double offset = 0;
  bool accumulate = false;

  template <class V>
  void visit(V& v) const {
    v("x", x, kReads);
    v("factors", factors, kReads);
    v("bias", bias, kReads.if_defined());
    v("y", y, kWrites.adding(accumulate));
    v("offset", offset);
    v("accumulate", accumulate);
  }
};

/// out[j] = sum over rows of a[i, j] * b[i, j]. a, b: [rows, n] float; out: [n] f32 (f64 for f64). divisors: as out,
/// optional: out[j] is divided by divisors[j].
struct DotColumns {
  Tensor a, b, out, divisors = {};

  template <class V>
  void visit(V& v) const {
    v("a", a, kReads);
    v("b", b, kReads);
    v("divisors", divisors, kReads.if_defined());
    v("out", out, kWrites);
  }
};

/// norms[o] = |row o of W + scale B A| and factors[o] = magnitudes[o] / norms[o], from squares[o] = |row o of W|^2,
/// products = A W^T: [rank, n] and gram = A A^T: [rank, rank]. b: [n, rank] and magnitudes: [n], float; all else f32
/// (f64 for f64).
struct LowRankNorms {
  Tensor squares, products, gram, b, magnitudes, norms, factors;
  double scale = 1;

  template <class V>
  void visit(V& v) const {
    v("squares", squares, kReads);
    v("products", products, kReads);
    v("gram", gram, kReads);
    v("b", b, kReads);
    v("magnitudes", magnitudes, kReads);
    v("norms", norms, kWrites);
    v("factors", factors, kWrites);
    v("scale", scale);
  }
};

}  // namespace nought
