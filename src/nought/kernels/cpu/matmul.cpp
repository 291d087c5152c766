// Matrix products: which kernel takes which.
#include <optional>

#include "nought/kernels/check.h"
#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/cpu/few_rows.h"
#include "nought/kernels/cpu/gemm_bf16.h"
#include "nought/kernels/cpu/rounded_products.h"
#include "nought/kernels/isa.h"
#include "nought/kernels/reference/reference.h"

namespace nought::cpu {
namespace {

/// Codes that are not transposed have no rows along k to read: they are packed, however few rows there are. So is what
/// AMX multiplies: packing costs less than what its tiles save.
bool is_for_few(const Product& product) {
  if (product.inputs == DType::bf16 && tile_unit() != TileUnit::none) return false;
  return product.sizes.m <= kFewRows && (product.transpose_b || product.codes == nullptr);
}

}  // namespace

std::string_view bf16_products() {
  switch (isa()) {
    case Isa::amx:
      return "AMX tiles";
    case Isa::amx_emulated:
      return "emulated AMX tiles";
    case Isa::avx512_bf16:
      return "AVX512-BF16 dot products";
    default:
      return "fp32 multiply-adds";
  }
}

namespace {

/// What is multiplied; nothing where there are no elements of c. f64 and an empty k are done here.
std::optional<Product> product_of(const MatMul& op) {
  check(op);
  const MatMulSizes sizes = op.sizes();
  if (sizes.m == 0 || sizes.n == 0) return {};
  if (op.a.dtype() == DType::f64 || sizes.k == 0) return reference::run(op), std::nullopt;
  const bool quantized = op.b.is_quantized();
  return Product{.sizes = sizes,
                 .a = op.a.raw(),
                 .b = quantized ? nullptr : op.b.values.raw(),
                 .bias = op.bias ? op.bias.raw() : nullptr,
                 .c = op.c.raw(),
                 .lda = op.transpose_a ? sizes.m : sizes.k,
                 .ldb = op.transpose_b ? sizes.k : sizes.n,
                 .ldc = sizes.n,
                 .inputs = op.a.dtype(),
                 .output = op.c.dtype(),
                 .transpose_a = op.transpose_a,
                 .transpose_b = op.transpose_b,
                 .accumulate = op.accumulate,
                 .codes = quantized ? &op.b : nullptr};
}

void multiply(const Product& product) {
  if (is_for_few(product)) return multiply_few(product);
  if (product.inputs == DType::bf16 && has_bf16_units()) return multiply_pairs(product, tile_unit());
  multiply_floats(product);
}

}  // namespace

void run(const MatMul& op) {
  if (const auto product = product_of(op)) multiply(*product);
}
void run_rounded(const MatMul& op) {
  if (const auto product = product_of(op))
    multiplies_rounded(*product) ? multiply_rounded(*product) : multiply(*product);
}

}  // namespace nought::cpu
