#include "nought/quantize/inverse_factor.h"

#include <array>
#include <cmath>
#include <memory>
#include <utility>

namespace nought {

namespace {

constexpr int64_t kBlock = InverseFactor::kBlock;

using DoubleBlock = std::array<double, kBlock * kBlock>;

/// A block B = R R^T with R upper triangular, in its place: Cholesky's way from the last column on.
void factorize(DoubleBlock& b) {
  for (int64_t j = kBlock - 1; j >= 0; --j) {
    double* const pivot_row = &b[static_cast<size_t>(j * kBlock)];
    for (int64_t k = j + 1; k < kBlock; ++k) pivot_row[j] -= pivot_row[k] * pivot_row[k];
    require(pivot_row[j] > 0 && std::isfinite(pivot_row[j]), "the moments of a product's inputs are not positive");
    pivot_row[j] = std::sqrt(pivot_row[j]);
    for (int64_t i = 0; i < j; ++i) {
      double* const row = &b[static_cast<size_t>(i * kBlock)];
      for (int64_t k = j + 1; k < kBlock; ++k) row[j] -= row[k] * pivot_row[k];
      row[j] /= pivot_row[j];
    }
  }
}

/// R^-1, from the last row on, with zeros below the diagonal.
void invert(const DoubleBlock& r, float* inverse) {
  const auto x = std::make_unique<DoubleBlock>();
  x->fill(0);
  for (int64_t i = kBlock - 1; i >= 0; --i) {
    double* const own = &(*x)[static_cast<size_t>(i * kBlock)];
    own[i] = 1;
    for (int64_t k = i + 1; k < kBlock; ++k) {
      const double factor = r[static_cast<size_t>(i * kBlock + k)];
      const double* const below = &(*x)[static_cast<size_t>(k * kBlock)];
      for (int64_t c = k; c < kBlock; ++c) own[c] -= factor * below[c];
    }
    for (int64_t c = i; c < kBlock; ++c) own[c] /= r[static_cast<size_t>(i * kBlock + i)];
  }
  for (size_t i = 0; i < x->size(); ++i) inverse[i] = static_cast<float>((*x)[i]);
}

/// The inverse of the factor of a diagonal block, which becomes it.
void invert_factor(const Tensor& block) {
  const auto values = std::make_unique<DoubleBlock>();
  float* const data = block.data<float>();
  std::copy(data, data + kBlock * kBlock, values->begin());
  factorize(*values);
  invert(*values, data);
}

Tensor rows(const Tensor& column, int64_t begin, int64_t end) { return column.slice(begin * kBlock, end * kBlock); }

Tensor negative(const Context& context, const Tensor& x) {
  const Tensor y = context.empty(x.shape(), x.dtype(), Category::workspace);
  context.copy(x, y);
  context.run(Scale{.x = y, .factor = -1});
  return y;
}

}  // namespace

InverseFactor::BlockColumns InverseFactor::ordered(const Context& context, const Tensor& moments,
                                                   double damping) const {
  const float* const from = moments.data<float>();
  const int64_t n = size();
  double mean = 0;
  for (int64_t i = 0; i < n; ++i) mean += static_cast<double>(from[i * (n + 1)]) / static_cast<double>(n);
  BlockColumns columns;
  for (int64_t j = 0; j < ceil_div(n, kBlock); ++j) {
    const Tensor column = context.zeros({(j + 1) * kBlock, kBlock}, DType::f32, Category::workspace);
    for (int64_t row = 0; row < column.dim(0); ++row)
      for (int64_t c = 0; c < kBlock; ++c) {
        const int64_t at = j * kBlock + c;
        float& to = column.data<float>()[row * kBlock + c];
        if (row < n && at < n) to = from[order_[static_cast<size_t>(row)] * n + order_[static_cast<size_t>(at)]];
        if (row == at) to = static_cast<float>((row >= n || to == 0 ? 1 : to) + (row < n ? damping * mean : 0));
      }
    columns.push_back(column);
  }
  return columns;
}

InverseFactor::InverseFactor(const Context& context, const Tensor& moments, std::vector<int64_t> order, double damping)
    : order_(std::move(order)), columns_(ordered(context, moments, damping)) {
  // M = R R^T from the last column of blocks on. The diagonal block of a column that is done is that of R^-1.
  for (int64_t j = blocks() - 1; j >= 0; --j) {
    const Tensor& column = columns_[static_cast<size_t>(j)];
    const Tensor diagonal = rows(column, j, j + 1);
    invert_factor(diagonal);
    if (j == 0) continue;
    const Tensor above = rows(column, 0, j), made = context.empty(above.shape(), DType::f32, Category::workspace);
    context.run(MatMul{.a = above, .b = diagonal, .c = made, .transpose_b = true});
    context.copy(made, above);
    const Tensor taken = negative(context, above);
    for (int64_t k = 0; k < j; ++k)
      context.run(MatMul{.a = rows(taken, 0, k + 1),
                         .b = rows(above, k, k + 1),
                         .c = columns_[static_cast<size_t>(k)],
                         .transpose_b = true,
                         .accumulate = true});
  }
  // R^-1 from the first column on: what is above the diagonal is -(R^-1 before it) (R above) (its diagonal block).
  for (int64_t j = 1; j < blocks(); ++j) {
    const Tensor& column = columns_[static_cast<size_t>(j)];
    const Tensor above = rows(column, 0, j), scaled = context.empty(above.shape(), DType::f32, Category::workspace);
    context.run(MatMul{.a = negative(context, above), .b = rows(column, j, j + 1), .c = scaled});
    context.zero(above);
    for (int64_t k = 0; k < j; ++k)
      context.run(MatMul{.a = columns_[static_cast<size_t>(k)],
                         .b = rows(scaled, k, k + 1),
                         .c = rows(above, 0, k + 1),
                         .accumulate = true});
  }
}

}  // namespace nought
