#include <string_view>

#include "nought/kernels/check.h"

namespace nought {
namespace {

void expect(std::string_view op, std::string_view name, const Tensor& x, int64_t numel, DType dtype) {
  require<ShapeError>(x.numel() == numel && x.dtype() == dtype, "{}: {} is {}, expected {} elements of {}", op, name, x,
                      numel, name_of(dtype));
}

void expect_rows(std::string_view op, std::string_view name, const Tensor& x) {
  require<ShapeError>(is_float(x.dtype()) && x.rank() >= 1 && x.dim(-1) > 0, "{}: {} is {}, expected rows of floats",
                      op, name, x);
}

}  // namespace

void check_shapes(const ScaleColumns& op) {
  expect_rows("ScaleColumns", "x", op.x);
  expect("ScaleColumns", "factors", op.factors, op.x.dim(-1), statistics_dtype(op.x.dtype()));
  expect("ScaleColumns", "y", op.y, op.x.numel(), op.x.dtype());
  if (op.bias) expect("ScaleColumns", "bias", op.bias, op.x.dim(-1), op.x.dtype());
}

void check_shapes(const DotColumns& op) {
  expect_rows("DotColumns", "a", op.a);
  expect("DotColumns", "b", op.b, op.a.numel(), op.a.dtype());
  expect("DotColumns", "out", op.out, op.a.dim(-1), statistics_dtype(op.a.dtype()));
  if (op.divisors) expect("DotColumns", "divisors", op.divisors, op.a.dim(-1), op.out.dtype());
}

void check_shapes(const LowRankNorms& op) {
  constexpr std::string_view kName = "LowRankNorms";
  expect_rows(kName, "b", op.b);
  const int64_t rank = op.b.dim(-1), n = op.b.rows();
  const DType sums = statistics_dtype(op.b.dtype());
  expect(kName, "squares", op.squares, n, sums);
  expect(kName, "products", op.products, rank * n, sums);
  expect(kName, "gram", op.gram, rank * rank, sums);
  expect(kName, "magnitudes", op.magnitudes, n, op.b.dtype());
  expect(kName, "norms", op.norms, n, sums);
  expect(kName, "factors", op.factors, n, sums);
}

}  // namespace nought
