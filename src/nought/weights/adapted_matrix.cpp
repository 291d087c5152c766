#include "nought/weights/adapted_matrix.h"

#include <cmath>

namespace nought {

Tensor transposed(const Tensor& x, Memory& memory) {
  const int64_t rows = x.dim(0), columns = x.dim(1);
  Tensor y = Tensor::empty(memory, {columns, rows}, DType::f32, Category::workspace, memory.host_pool());
  const std::vector<float> values = x.to_vector<float>();
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) y.data<float>()[j * rows + i] = values[static_cast<size_t>(i * columns + j)];
  return y;
}

WeightFactors weight_factors(const Tensor& a, const Tensor& b, WeightLayout layout, double scale, Memory& memory) {
  if (layout == WeightLayout::out_in) return {b, a, scale};
  return {transposed(a, memory), transposed(b, memory), scale};
}

void add_product(const Context& context, const WeightFactors& factors, int64_t first, const Tensor& rows) {
  const Tensor product = context.empty(rows.shape(), DType::f32, Category::workspace);
  context.run(MatMul{.a = factors.rows.slice(first, first + rows.dim(0)), .b = factors.columns, .c = product});
  context.run(Scale{.x = product, .factor = factors.scale});
  context.run(AddTo{.x = product, .into = rows});
}

Tensor output_norms(const Context& context, const Tensor& weight, WeightLayout layout) {
  const bool out_in = layout == WeightLayout::out_in;
  Tensor norms = context.empty({weight.dim(out_in ? 0 : 1)}, DType::f32, Category::workspace);
  out_in ? context.run(DotRows{.a = weight, .b = weight, .out = norms})
         : context.run(DotColumns{.a = weight, .b = weight, .out = norms});
  for (float& each : norms.span<float>()) each = std::sqrt(each);
  return norms;
}

}  // namespace nought
