// What optimizers and reductions send instead of values: signs with a scale, and factors of low rank.
#pragma once

#include "nought/kernels/operation.h"

namespace nought {

/// Error-compensated signs (arXiv 2102.02888): u = x + error; scale[0] = |u|_2 / sqrt(n); bit i % 8 of bits[i / 8] is 1
/// where u[i] >= 0, and 0 behind the last; error = u - scale, or u + scale where the bit is 0. x, error: [n] f32;
/// bits: [(n + 7) / 8] u8; scale: [1] f32. Squares are summed in f64 in blocks of 65536 elements, so the result is the
/// same on any number of threads.
struct OneBitEncode {
  Tensor x, error, bits, scale;

  template <class V>
  void visit(V& v) const {
    v("x", x, kReads);
    v("error", error, kUpdates);
    v("bits", bits, kWrites);
    v("scale", scale, kWrites);
  }
};

/// y = factor * scale[0] where the bit is 1, else -factor * scale[0] [+ y]. y: [n] f32; bits, scale: as in
/// OneBitEncode.
struct OneBitDecode {
  Tensor bits, scale, y;
  double factor = 1;
  bool accumulate = false;

  template <class V>
  void visit(V& v) const {
    v("bits", bits, kReads);
    v("scale", scale, kReads);
    v("y", y, kWrites.adding(accumulate));
    v("factor", factor);
    v("accumulate", accumulate);
  }
};

/// y = x / (sqrt(second_moment) + eps), or with `multiply` x * (sqrt(second_moment) + eps); 0 where the second moment
/// is 0: such an element has had no gradient, and what stands there is noise of a compression. All [n] f32; y may be x.
struct Precondition {
  Tensor x, second_moment, y;
  double eps = 1e-8;
  bool multiply = false;

  template <class V>
  void visit(V& v) const {
    v("x", x, kReads);
    v("second_moment", second_moment, kReads);
    v("y", y, kWrites);
    v("eps", eps);
    v("multiply", multiply);
  }
};

/// out[0] = max (sqrt(a[i]) + eps) / (sqrt(b[i]) + eps) (f32). a, b: [n] f32, n > 0, nowhere negative; eps > 0.
struct GreatestRatio {
  Tensor a, b, out;
  double eps = 1e-8;

  template <class V>
  void visit(V& v) const {
    v("a", a, kReads);
    v("b", b, kReads);
    v("out", out, kWrites);
    v("eps", eps);
  }
};

/// The rows of x [r, n] f32 become orthonormal, by Gram-Schmidt in f64, twice. A row that depends on those before it
/// becomes zero, or with `draws` a random direction of its own, normal_at(key, row * n + i), as long as there is one
/// (r <= n). On the CPU it runs on the calling thread alone.
struct Orthonormalize {
  Tensor x;
  uint64_t key = 0;
  bool draws = false;

  template <class V>
  void visit(V& v) const {
    v("x", x, kUpdates);
    v("key", key);
    v("draws", draws);
  }
};

}  // namespace nought
