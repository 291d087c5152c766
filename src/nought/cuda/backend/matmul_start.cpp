// MatMul by cuBLASLt: operands brought to one alignment, codes decoded, and what the library does not add itself.
#include "nought/cuda/backend/matmul_start.h"

#include "nought/cuda/backend/matmul.h"

namespace nought::cuda {

namespace {

bool lies_well(const void* address) { return reinterpret_cast<uintptr_t>(address) % Blas::kAlignment == 0; }

void copy_on_device(const void* from, void* to, int64_t bytes, const Place& at) {
  check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, at.launch.stream),
        "a copy of an operand");
}

/// The operand, or a copy of it that lies where every product's operands lie, so that its algorithm is the same.
const void* aligned(const Tensor& x, Place& at) {
  if (!x || lies_well(x.raw())) return x ? x.raw() : nullptr;
  void* const copied = at.room();
  copy_on_device(x.raw(), copied, x.bytes(), at);
  return copied;
}

const void* decoded(const Weight& b, DType dtype, Place& at) {
  void* const dense = at.room();
  decode_weight(at.launch, b, {dense, dtype});
  return dense;
}

}  // namespace

/// The library has no product of f64 that is rounded to f32.
bool fits(const MatMul& op) { return op.a.dtype() != DType::f64 || op.c.dtype() == DType::f64; }

BlasProduct product_of(const MatMul& op) {
  const auto [m, n, k] = op.sizes();
  return {.m = m,
          .n = n,
          .k = k,
          .inputs = op.a.dtype(),
          .output = op.c.dtype(),
          .transpose_a = op.transpose_a,
          .transpose_b = op.transpose_b,
          .bias = op.bias && op.bias.dtype() == op.c.dtype() && op.c.dtype() != DType::f64 && k > 0,
          .whole = size_of(op.c.dtype()) == 2 && (op.bias || op.accumulate)};
}

void start(const MatMul& op, Place& at) {
  const auto [m, n, k] = op.sizes();
  if (m == 0 || n == 0) return;
  const bool moves = !lies_well(op.c.raw());
  void* const c = moves ? at.room() : op.c.raw();
  if (moves && op.accumulate) copy_on_device(op.c.raw(), c, op.c.bytes(), at);

  const BlasProduct product = product_of(op);
  const bool begins = k == 0 || (op.bias && !product.bias);  // another bias is what the sum begins with
  if (begins) begin_product(at.launch, array_of(op.bias), {c, op.c.dtype()}, op.accumulate, m, n);
  if (k > 0) {
    void* const workspace = at.blas.workspace_of(product) > 0 ? at.room() : nullptr;
    const void* const a = aligned(op.a, at);
    const void* const b = op.b.is_quantized() ? decoded(op.b, op.a.dtype(), at) : aligned(op.b.values, at);
    const void* const bias = product.bias ? aligned(op.bias, at) : nullptr;
    at.blas.multiply(product, a, b, bias, c, op.accumulate || begins, workspace, at.launch.stream);
  }
  if (moves) copy_on_device(c, op.c.raw(), op.c.bytes(), at);
}

}  // namespace nought::cuda
