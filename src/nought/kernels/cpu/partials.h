// Sums over rows in a fixed order: each chunk of rows adds up into its own fp32 row, and the rows are then combined.
#pragma once

#include "nought/kernels/cpu/parallel.h"
#include "nought/kernels/cpu/scratch.h"
#include "nought/tensor/tensor.h"

namespace nought::cpu {

/// fp32 sums [chunks, n] of the rows of each chunk, in the calling thread's scratch.
class Partials {
 public:
  Partials(int64_t rows, int64_t n)
      : chunks_(rows), n_(n), sums_(chunks_.count * n * static_cast<int64_t>(sizeof(float))) {}

  const RowChunks& chunks() const { return chunks_; }
  /// The sums of one chunk: [n]. Undefined at first.
  float* row(int64_t chunk) const { return sums_.data<float>() + chunk * n_; }
  /// out [+]= the sum of all chunks, in their order. out: [n], bf16, f16 or f32.
  void combine(const Tensor& out, bool accumulate) const;

 private:
  RowChunks chunks_;
  int64_t n_;
  Scratch sums_;
};

}  // namespace nought::cpu
