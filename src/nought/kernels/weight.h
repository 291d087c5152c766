// Weight: the operand that a product multiplies by or a lookup reads: dense values, or 8-bit codes with scales.
//
// Design goals: one set of operations takes both kinds, and whoever reads visit() sees the tensors that are there:
// codes and scales, with their own bytes. Non-goals: where a weight comes from and whether it is trained
// (autograd/weight_view knows), other formats of blocks.
#pragma once

#include <string>
#include <utility>

#include "nought/kernels/operation.h"

namespace nought {

/// How many neighbouring codes of a row share a scale.
inline constexpr int64_t kCodeBlock = 32;

/// Dense: `values` has a float dtype, and there are no scales. Codes: `values` is i8 [..., n] and `scales` is f16
/// [..., n / kCodeBlock]; an element is its code times the scale of its block, which fp32 holds exactly. These are the
/// blocks of GGUF's Q8_0. They run along the last dimension, the input's for a weight of [out, in].
struct Weight {
  Tensor values, scales;

  Weight() = default;
  Weight(Tensor dense) : values(std::move(dense)) {}  // NOLINT(google-explicit-constructor): most weights are dense
  Weight(Tensor codes, Tensor of_blocks) : values(std::move(codes)), scales(std::move(of_blocks)) {}

  bool defined() const { return values.defined(); }
  bool is_quantized() const { return values.dtype() == DType::i8; }
  const Shape& shape() const { return values.shape(); }
  int64_t dim(int axis) const { return values.dim(axis); }

  /// Rows [begin, end) along the first dimension, as a view.
  Weight slice(int64_t begin, int64_t end) const;
  /// A view of the elements in another shape. Quantized values keep their last dimension.
  Weight reshape(Shape shape) const;
  /// "bf16[4, 256]", "i8[4, 256] with scales f16[4, 8]"
  std::string str() const;

  /// Lists its tensors to the visitor of an operation: an operation with a member `b` calls b.visit(v, "b", kReads).
  template <class V>
  void visit(V& v, std::string_view name, const Use& use) const {
    v(name, values, use);
    if (is_quantized()) v("scales", scales, use);
  }
};

/// The shape of the scales of codes. ShapeError unless rows are whole blocks.
Shape scales_shape(const Shape& codes);

}  // namespace nought
