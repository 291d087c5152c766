// The product of two matrices.
#pragma once

#include "nought/kernels/weight.h"

namespace nought {

/// c: [m, n] = op(a): [m, k] times op(b): [k, n].
struct MatMulSizes {
  int64_t m = 0, n = 0, k = 0;
  friend bool operator==(const MatMulSizes&, const MatMulSizes&) = default;
};

/// c = op(a) op(b) [+ bias] [+ c]. a: [M, K], b: [K, N], c: [M, N]. With transpose_a, a is stored as [K, M]; with
/// transpose_b, b is stored as [N, K]. Higher ranks fold to rows. a and a dense b share a float dtype; c has a's or
/// f32. An element of a b of codes is code * scale; kernels may round it to a's dtype. bias: [N], dtype of a, optional.
struct MatMul {
  Tensor a;
  Weight b;
  Tensor c, bias = {};
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false;

  template <class V>
  void visit(V& v) const {
    v("a", a, kReads);
    b.visit(v, "b", kReads);
    v("bias", bias, kReads.if_defined());
    v("c", c, kWrites.adding(accumulate));
    v("transpose_a", transpose_a);
    v("transpose_b", transpose_b);
    v("accumulate", accumulate);
  }
  /// The sizes by a and b; those of c are theirs, once the operation was checked.
  MatMulSizes sizes() const;
  double flops() const;
  /// "768 x 3072 x 4096, a'": M x N x K, and which factors are read transposed.
  std::string label() const;
};

}  // namespace nought
