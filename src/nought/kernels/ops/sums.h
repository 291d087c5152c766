// Sums over rows, over tensors, of elements and of squares, and the largest magnitude.
#pragma once

#include "nought/kernels/operation.h"

namespace nought {

/// out[j] = sum over rows of x[i, j] [+ out[j]]: the gradient of a bias. x: [rows, n], out: [n]; out may be f32.
struct SumRows {
  Tensor x, out;
  bool accumulate = false;

  template <class V>
  void visit(V& v) const {
    v("x", x, kReads);
    v("out", out, kWrites.adding(accumulate));
    v("accumulate", accumulate);
  }
};

/// out = inputs[0] + inputs[1] + ..., in that order, accumulated in fp32 (f64 for f64; exact for integers) and rounded
/// once. All tensors have one dtype and size; integers are allowed. out may be one of the inputs. Runs on the calling
/// thread alone. pairwise: in a binary tree instead, whose left half is the largest power of two of the inputs.
struct SumTensors {
  std::vector<Tensor> inputs;
  Tensor out;
  bool pairwise = false;

  template <class V>
  void visit(V& v) const {
    v("an input", inputs, kReads);
    v("out", out, kWrites);
    v("pairwise", pairwise);
  }
};

/// out[0] = sum of x[i]^2 (f64). Blocks of 65536 elements are summed one by one, so the result is the same on any
/// number of threads.
struct SumSquares {
  Tensor x, out;

  template <class V>
  void visit(V& v) const {
    v("x", x, kReads);
    v("out", out, kWrites);
  }
};

/// out[0] = x[0] + x[1] + ... in f64, in that order. x: float; out: f64. Runs on the calling thread alone.
struct SumElements {
  Tensor x, out;

  template <class V>
  void visit(V& v) const {
    v("x", x, kReads);
    v("out", out, kWrites);
  }
};

/// out[0] = max |x[i]| (f32), NaN if any x[i] is NaN. With `accumulate` the largest of these and of |out[0]|.
struct AbsMax {
  Tensor x, out;
  bool accumulate = false;

  template <class V>
  void visit(V& v) const {
    v("x", x, kReads);
    v("out", out, accumulate ? kUpdates : kWrites);
    v("accumulate", accumulate);
  }
};

}  // namespace nought
