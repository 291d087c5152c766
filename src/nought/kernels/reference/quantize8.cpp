#include <algorithm>

#include "nought/base/math.h"
#include "nought/kernels/check.h"
#include "nought/kernels/dynamic_code.h"
#include "nought/kernels/reference/loops.h"
#include "nought/kernels/rounding.h"

namespace nought::reference {
namespace {

/// Looks at all 256 values, where the map's own nearest() has a table.
uint8_t nearest_code(const DynamicCode& code, double x, bool is_signed) {
  int best = 0;
  for (int i = 1; i < 256; ++i) {
    const double here = double{code.values()[static_cast<size_t>(i)]},
                 before = double{code.values()[static_cast<size_t>(best)]};
    if (std::abs(x - here) <= std::abs(x - before)) best = i;
  }
  return static_cast<uint8_t>(!is_signed && x > 0 ? std::max(best, 1) : best);
}

}  // namespace

void run(const Quantize8& op) {
  check(op);
  const DynamicCode& code = DynamicCode::of(op.is_signed);
  const float* x = op.x.data<float>();
  for (int64_t block = 0; block * op.block < op.x.numel(); ++block) {
    const int64_t begin = block * op.block, end = std::min(op.x.numel(), begin + op.block);
    const auto [least, most] = std::minmax_element(x + begin, x + end);
    const float scale = *most >= -*least ? *most : *least;
    op.scales.data<float>()[block] = scale;
    for (int64_t i = begin; i < end; ++i)
      op.codes.data<uint8_t>()[i] = scale == 0 ? code.zero() : nearest_code(code, double{x[i] / scale}, op.is_signed);
  }
}

void run(const Dequantize8& op) {
  check(op);
  const auto& values = DynamicCode::of(op.is_signed).values();
  for (int64_t i = 0; i < op.x.numel(); ++i)
    op.x.data<float>()[i] = values[op.codes.data<uint8_t>()[i]] * op.scales.data<float>()[i / op.block];
}

void run(const QuantizeBlocks& op) {
  check(op);
  visit_float(op.x.dtype(), [&](auto tag) {
    const auto* x = op.x.data<typename decltype(tag)::type>();
    for (int64_t block = 0; block < op.scales.numel(); ++block)
      op.scales.data<f16_t>()[block] =
          quantize_block(x + block * kCodeBlock, op.codes.data<int8_t>() + block * kCodeBlock);
  });
}

void run(const DequantizeBlocks& op) {
  check(op);
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const QuantizedValues<accumulator_t<T>> values(op.weight);
    for (int64_t i = 0; i < op.x.numel(); ++i) op.x.data<T>()[i] = static_cast<T>(values[i]);
  });
}

void run(const DecodeScales& op) {
  check(op);
  const float* nested = op.nested.data<float>();
  for (int64_t i = 0; i < op.scales.numel(); ++i)
    op.scales.data<float>()[i] =
        nested_values()[op.codes.data<uint8_t>()[i]] * nested[1 + i / kNestedBlock] + nested[0];
}

}  // namespace nought::reference
