// Weight: the operand that a product multiplies by or a lookup reads: dense values, or codes with scales.
//
// Design goals: one set of operations takes all kinds, and whoever reads visit() sees the tensors that are there:
// codes and scales, with their own bytes. Non-goals: where a weight comes from and whether it is trained
// (autograd/weight_view knows).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "nought/kernels/code_kind.h"
#include "nought/kernels/operation.h"

namespace nought {

/// How many neighbouring codes of a row share a scale, in Q8_0.
inline constexpr int64_t kCodeBlock = 32;
/// How many neighbouring codes of 4 bits do.
inline constexpr int64_t kFourBitBlock = 64;
/// The codes of a block take so many bytes, in every kind.
inline constexpr int64_t kCodeBlockBytes = 32;

/// Dense: `values` has a float dtype, and there are no scales. Codes of Q8_0: `values` is i8 [..., n] and `scales` is
/// f16 [..., n / kCodeBlock]; an element is its code times the scale of its block, which fp32 holds exactly. The blocks
/// run along the last dimension, the input's for a weight of [out, in]. Codes of 4 bits: `values` is u8, two codes
/// each, the upper one first; `scales` is f32; an element is what its code stands for times the scale, in f32. Blocks
/// are neighbours of the flattened weight, which has whole ones. Blocks of a file: `values` is u8, the bytes of all
/// blocks in the order of the rows, which have whole ones; neighbouring rows may be of several formats (bands).
struct Weight {
  Tensor values, scales;

  Weight() = default;
  Weight(Tensor dense) : values(std::move(dense)) {}  // NOLINT(google-explicit-constructor): most weights are dense
  Weight(Tensor codes, Tensor of_blocks) : values(std::move(codes)), scales(std::move(of_blocks)) {}
  /// Elements of the flattened weight up to `end` that have one format of blocks.
  struct Band {
    const WeightFormat* format;
    int64_t end;
    friend bool operator==(const Band&, const Band&) = default;
  };

  /// Codes of 4 bits.
  Weight(CodeKind kind, Shape shape, Tensor codes, Tensor of_blocks)
      : values(std::move(codes)), scales(std::move(of_blocks)), kind_(kind), shape_(shape) {}

  /// Blocks of a file. bands: rising, the last one ends with the weight.
  Weight(Shape shape, Tensor bytes, std::vector<Band> bands)
      : values(std::move(bytes)), kind_(CodeKind::blocks), shape_(shape), bands_(std::move(bands)) {}

  bool defined() const { return values.defined(); }
  bool is_quantized() const { return values.dtype() == DType::i8 || kind_ != CodeKind::q8_0; }
  bool is_four_bits() const { return nought::is_four_bits(kind_); }
  /// The kind of its codes.
  CodeKind kind() const { return kind_; }
  bool is_blocks() const { return kind_ == CodeKind::blocks; }
  const std::vector<Band>& bands() const { return bands_; }
  const Shape& shape() const { return kind_ == CodeKind::q8_0 ? values.shape() : shape_; }
  int64_t dim(int axis) const { return shape()[axis]; }
  int64_t numel() const { return shape().numel(); }

  /// Rows [begin, end) along the first dimension, as a view. Those of 4-bit codes are whole blocks.
  Weight slice(int64_t begin, int64_t end) const;
  /// A view of the elements in another shape. Codes of Q8_0, and blocks, keep their last dimension.
  Weight reshape(Shape shape) const;
  /// "bf16[4, 256]", "i8[4, 256] with scales f16[4, 8]", "nf4[4, 256] with scales f32[16]"
  std::string str() const;

  /// Lists its tensors to the visitor of an operation: an operation with a member `b` calls b.visit(v, "b", kReads).
  template <class V>
  void visit(V& v, std::string_view name, const Use& use) const {
    v(name, values, use);
    if (is_quantized() && !is_blocks()) v("scales", scales, use);
  }

 private:
  CodeKind kind_ = CodeKind::q8_0;
  Shape shape_ = {};         // of 4-bit codes and blocks; other codes are shaped
  std::vector<Band> bands_;  // of blocks
};

/// The bytes of elements [0, end) of a weight of blocks. ShapeError if a block is cut.
int64_t bytes_before(const std::vector<Weight::Band>& bands, int64_t end);
/// The bytes of so many elements, whole blocks. ShapeError if a block is cut.
int64_t bytes_of_blocks(const WeightFormat& format, int64_t elements);

/// The shape of the scales of codes of Q8_0. ShapeError unless rows are whole blocks.
Shape scales_shape(const Shape& codes);

}  // namespace nought
