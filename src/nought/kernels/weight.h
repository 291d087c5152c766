// Weight: the operand that a product multiplies by or a lookup reads: dense values, or codes with scales.
//
// Design goals: one set of operations takes all kinds, and whoever reads visit() sees the tensors that are there:
// codes and scales, with their own bytes. Non-goals: where a weight comes from and whether it is trained
// (autograd/weight_view knows).
#pragma once

#include <string>
#include <utility>

#include "nought/kernels/code_kind.h"
#include "nought/kernels/operation.h"

namespace nought {

/// How many neighbouring codes of a row share a scale, in Q8_0.
inline constexpr int64_t kCodeBlock = 32;
/// How many neighbouring codes of 4 bits do.
inline constexpr int64_t kFourBitBlock = 64;
constexpr int64_t block_of(CodeKind kind) { return is_four_bits(kind) ? kFourBitBlock : kCodeBlock; }
/// The codes of a block take so many bytes, in every kind.
inline constexpr int64_t kCodeBlockBytes = 32;

/// Dense: `values` has a float dtype, and there are no scales. Codes of Q8_0: `values` is i8 [..., n] and `scales` is
/// f16 [..., n / kCodeBlock]; an element is its code times the scale of its block, which fp32 holds exactly. The blocks
/// run along the last dimension, the input's for a weight of [out, in]. Codes of 4 bits: `values` is u8, two codes
/// each, the upper one first; `scales` is f32; an element is what its code stands for times the scale, in f32. Blocks
/// are neighbours of the flattened weight, which has whole ones.
struct Weight {
  Tensor values, scales;

  Weight() = default;
  Weight(Tensor dense) : values(std::move(dense)) {}  // NOLINT(google-explicit-constructor): most weights are dense
  Weight(Tensor codes, Tensor of_blocks) : values(std::move(codes)), scales(std::move(of_blocks)) {}
  /// Codes of 4 bits.
  Weight(CodeKind kind, Shape shape, Tensor codes, Tensor of_blocks)
      : values(std::move(codes)), scales(std::move(of_blocks)), kind_(kind), shape_(shape) {}

  bool defined() const { return values.defined(); }
  bool is_quantized() const { return values.dtype() == DType::i8 || is_four_bits(); }
  bool is_four_bits() const { return nought::is_four_bits(kind_); }
  /// The kind of its codes.
  CodeKind kind() const { return kind_; }
  const Shape& shape() const { return is_four_bits() ? shape_ : values.shape(); }
  int64_t dim(int axis) const { return shape()[axis]; }
  int64_t numel() const { return shape().numel(); }

  /// Rows [begin, end) along the first dimension, as a view. Those of 4-bit codes are whole blocks.
  Weight slice(int64_t begin, int64_t end) const;
  /// A view of the elements in another shape. Codes of Q8_0 keep their last dimension.
  Weight reshape(Shape shape) const;
  /// "bf16[4, 256]", "i8[4, 256] with scales f16[4, 8]", "nf4[4, 256] with scales f32[16]"
  std::string str() const;

  /// Lists its tensors to the visitor of an operation: an operation with a member `b` calls b.visit(v, "b", kReads).
  template <class V>
  void visit(V& v, std::string_view name, const Use& use) const {
    v(name, values, use);
    if (is_quantized()) v("scales", scales, use);
  }

 private:
  CodeKind kind_ = CodeKind::q8_0;
  Shape shape_ = {};  // 4-bit codes have one, other codes are shaped
};

/// The shape of the scales of codes of Q8_0. ShapeError unless rows are whole blocks.
Shape scales_shape(const Shape& codes);

}  // namespace nought
