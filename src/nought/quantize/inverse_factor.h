// InverseFactor: the triangular factor of the inverse of a symmetric matrix, by which GPTQ gives on what a column
// loses.
//
// Design goals: nearly all of the work is products of blocks, which the kernels make.
#pragma once

#include <cstdint>
#include <vector>

#include "nought/kernels/kernels.h"

namespace nought {

class InverseFactor {
 public:
  static constexpr int64_t kBlock = 128;

  /// The upper triangular U with U^T U = (M + damping * mean(diagonal of M))^-1. M: rows and columns of `moments`, [n,
  /// n] f32, symmetric and positive, in this order. A column that is 0 counts 1 on the diagonal. Error unless M is
  /// positive with its damping.
  InverseFactor(const Context& context, const Tensor& moments, std::vector<int64_t> order, double damping);

  /// The row of `moments` that each row of M is.
  const std::vector<int64_t>& order() const { return order_; }
  int64_t size() const { return std::ssize(order_); }
  int64_t blocks() const { return std::ssize(columns_); }
  /// U by blocks, [kBlock, kBlock]; those behind `size` are the unit matrix's. i <= j.
  Tensor block(int64_t i, int64_t j) const {
    return columns_[static_cast<size_t>(j)].slice(i * kBlock, (i + 1) * kBlock);
  }
  float at(int64_t row, int64_t column) const {
    return columns_[static_cast<size_t>(column / kBlock)].data<float>()[row * kBlock + column % kBlock];
  }

 private:
  /// Column j of blocks, those on and above the diagonal: [(j + 1) * kBlock, kBlock].
  using BlockColumns = std::vector<Tensor>;
  BlockColumns ordered(const Context& context, const Tensor& moments, double damping) const;

  std::vector<int64_t> order_;
  BlockColumns columns_;
};

}  // namespace nought
