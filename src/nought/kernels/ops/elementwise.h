// Operations on single elements: sums of two tensors, factors, constants, conversions.
#pragma once

#include <cmath>

#include "nought/kernels/operation.h"

namespace nought {

/// out = a + b. out may be a or b.
struct Add {
  Tensor a, b, out;

  template <class V>
  void visit(V& v) const {
    v("a", a, kReads);
    v("b", b, kReads);
    v("out", out, kWrites);
  }
};

/// x *= factor, or with squares, [1] f64, a sum of squares: x *= factor / (sqrt(squares) + eps).
struct Scale {
  Tensor x, squares = {};
  double factor = 1, eps = 0;

  /// Read by the kernel alone: squares lie on the device.
  double taken_factor() const { return squares ? factor / (std::sqrt(squares.data<double>()[0]) + eps) : factor; }

  template <class V>
  void visit(V& v) const {
    v("x", x, kUpdates);
    v("squares", squares, kReads.if_defined());
    v("factor", factor);
    v("eps", eps);
  }
};

/// x = value, for every float dtype.
struct Fill {
  Tensor x;
  double value = 0;

  template <class V>
  void visit(V& v) const {
    v("x", x, kWrites);
    v("value", value);
  }
  /// The host reads the seed of a backward walk, which is one element.
  void dry_run() const;
};

/// y = x converted to y's float dtype (round to nearest even).
struct Cast {
  Tensor x, y;

  template <class V>
  void visit(V& v) const {
    v("x", x, kReads);
    v("y", y, kWrites);
  }
};

/// into += x. The two may have different float dtypes; the sum is rounded once.
struct AddTo {
  Tensor x, into;

  template <class V>
  void visit(V& v) const {
    v("x", x, kReads);
    v("into", into, kUpdates);
  }
};

}  // namespace nought
