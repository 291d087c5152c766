// Checks of weights of codes, and of what makes and decodes them.
#include "nought/base/math.h"
#include "nought/io/weight_formats.h"
#include "nought/kernels/check.h"
#include "nought/kernels/four_bits.h"

namespace nought {
namespace {

/// An argument of an operation on codes, and the names to blame it by.
struct CodesOperand {
  std::string_view op, name;
  const Tensor& tensor;

  void require_dtype(DType dtype) const {
    require<ShapeError>(tensor.dtype() == dtype, "{}: {} is {}, expected dtype {}", op, name, tensor, name_of(dtype));
  }
  void require_size(DType dtype, int64_t numel) const {
    require_dtype(dtype);
    require<ShapeError>(tensor.numel() == numel, "{}: {} is {} with {} elements, expected {}", op, name, tensor,
                        tensor.numel(), numel);
  }
  void require_floats(int64_t numel) const {
    require<ShapeError>(is_float(tensor.dtype()), "{}: {} is {}, expected a floating-point dtype", op, name, tensor);
    require_size(tensor.dtype(), numel);
  }
};

void check_four_bits(std::string_view operation, std::string_view name, const Weight& weight) {
  const int64_t numel = weight.numel();
  require<ShapeError>(numel % kFourBitBlock == 0, "{}: {} is {}, expected whole blocks of {} codes", operation, name,
                      weight, kFourBitBlock);
  CodesOperand{operation, name, weight.values}.require_size(DType::u8, numel / 2);
  CodesOperand{operation, "scales", weight.scales}.require_size(DType::f32, numel / kFourBitBlock);
}

void check_blocks(std::string_view operation, std::string_view name, const Weight& weight) {
  const auto& bands = weight.bands();
  require<ShapeError>(!bands.empty() && bands.back().end == weight.numel() && weight.shape().rank() >= 1,
                      "{}: {} is {}, and its bands of formats do not end with it", operation, name, weight.str());
  for (const Weight::Band& band : bands)
    require<ShapeError>(weight.dim(-1) % band.format->block == 0, "{}: {} is {}, expected rows of whole blocks of {}",
                        operation, name, weight.str(), band.format->block);
  CodesOperand{operation, name, weight.values}.require_size(DType::u8, bytes_before(bands, weight.numel()));
}

}  // namespace

void check_codes(std::string_view operation, std::string_view name, const Weight& weight) {
  if (weight.is_blocks()) return check_blocks(operation, name, weight);
  if (weight.is_four_bits()) return check_four_bits(operation, name, weight);
  const Shape& shape = weight.shape();
  require<ShapeError>(shape.rank() >= 1 && shape[-1] > 0 && shape[-1] % kCodeBlock == 0,
                      "{}: {} is {}, expected rows of a multiple of {} codes", operation, name, weight.values,
                      kCodeBlock);
  CodesOperand{operation, "scales", weight.scales}.require_dtype(DType::f16);
  require<ShapeError>(weight.scales.shape() == scales_shape(shape), "{}: scales is {}, expected {} for {}", operation,
                      weight.scales, scales_shape(shape), weight.values);
}

void check_shapes(const QuantizeBlocks& op) {
  CodesOperand{"QuantizeBlocks", "x", op.x}.require_floats(op.x.numel());
  CodesOperand{"QuantizeBlocks", "codes", op.codes}.require_size(DType::i8, op.x.numel());
  check_codes("QuantizeBlocks", "codes", {op.codes, op.scales});
}

void check_shapes(const DequantizeBlocks& op) {
  if (op.weight.kind() == CodeKind::q8_0)
    CodesOperand{"DequantizeBlocks", "codes", op.weight.values}.require_dtype(DType::i8);
  check_codes("DequantizeBlocks", "codes", op.weight);
  CodesOperand{"DequantizeBlocks", "x", op.x}.require_floats(op.weight.numel());
}

void check_shapes(const DecodeScales& op) {
  const int64_t n = op.codes.numel();
  CodesOperand{"DecodeScales", "codes", op.codes}.require_dtype(DType::u8);
  CodesOperand{"DecodeScales", "nested", op.nested}.require_size(DType::f32, 1 + ceil_div(n, kNestedBlock));
  CodesOperand{"DecodeScales", "scales", op.scales}.require_size(DType::f32, n);
}

}  // namespace nought
