// Ends a column of C whose sums are known: bias, what is there already, rounding.
#pragma once

#include "nought/base/math.h"
#include "nought/kernels/cpu/gemm.h"

namespace nought::cpu {

/// sums: those of some rows of column j. T: the dtype of the inputs.
template <class T>
void finish_column(const Product& product, Interval rows, int64_t j, const float* sums) {
  const float bias = product.bias == nullptr ? 0.0f : static_cast<float>(static_cast<const T*>(product.bias)[j]);
  const auto finish = [&](auto* c) {
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      auto& out = c[row * product.ldc + j];
      const float sum = sums[row - rows.begin] + bias;
      out =
          static_cast<std::remove_reference_t<decltype(out)>>(product.accumulate ? sum + static_cast<float>(out) : sum);
    }
  };
  product.output == DType::f32 ? finish(static_cast<float*>(product.c)) : finish(static_cast<T*>(product.c));
}

}  // namespace nought::cpu
