#include "nought/kernels/weight.h"

#include <algorithm>

#include "nought/io/weight_formats.h"

namespace nought {

Shape scales_shape(const Shape& codes) {
  require<ShapeError>(codes.rank() > 0 && codes[-1] % kCodeBlock == 0,
                      "codes of shape {} cannot form blocks: the last dimension must be a multiple of {}", codes,
                      kCodeBlock);
  Shape scales;
  for (int axis = 0; axis + 1 < codes.rank(); ++axis) scales.push_back(codes[axis]);
  scales.push_back(codes[-1] / kCodeBlock);
  return scales;
}

int64_t bytes_of_blocks(const WeightFormat& format, int64_t elements) {
  require<ShapeError>(elements % format.block == 0, "{} elements are not whole blocks of {}, which have {}", elements,
                      format.name, format.block);
  return elements / format.block * format.block_bytes;
}

int64_t bytes_before(const std::vector<Weight::Band>& bands, int64_t end) {
  int64_t bytes = 0, begin = 0;
  for (const Weight::Band& band : bands) {
    if (begin >= end) break;
    bytes += bytes_of_blocks(*band.format, std::min(end, band.end) - begin);
    begin = band.end;
  }
  return bytes;
}

namespace {

/// The bands of elements [begin, end).
std::vector<Weight::Band> bands_of(const std::vector<Weight::Band>& bands, int64_t begin, int64_t end) {
  std::vector<Weight::Band> part;
  int64_t first = 0;
  for (const Weight::Band& band : bands) {
    if (first < end && band.end > begin) part.push_back({band.format, std::min(end, band.end) - begin});
    first = band.end;
  }
  return part;
}

}  // namespace

Weight Weight::slice(int64_t begin, int64_t end) const {
  if (!is_quantized()) return values.slice(begin, end);
  if (kind_ == CodeKind::q8_0) return {values.slice(begin, end), scales.slice(begin, end)};
  Shape rows{end - begin};
  for (int axis = 1; axis < shape_.rank(); ++axis) rows.push_back(shape_[axis]);
  const int64_t row = shape_[0] == 0 ? 0 : shape_.numel() / shape_[0];
  if (is_blocks())
    return {rows, values.flat(bytes_before(bands_, begin * row), bytes_before(bands_, end * row)),
            bands_of(bands_, begin * row, end * row)};
  require<ShapeError>(begin * row % kFourBitBlock == 0 && end * row % kFourBitBlock == 0,
                      "rows [{}, {}) of {} are not whole blocks of {}", begin, end, str(), kFourBitBlock);
  return {kind_, rows, values.flat(begin * row / 2, end * row / 2),
          scales.flat(begin * row / kFourBitBlock, end * row / kFourBitBlock)};
}

Weight Weight::reshape(Shape shape) const {
  if (!is_quantized()) return values.reshape(shape);
  if (kind_ == CodeKind::q8_0) return {values.reshape(shape), scales.reshape(scales_shape(shape))};
  require<ShapeError>(shape.numel() == numel(), "{} cannot have shape {}", *this, shape);
  if (is_blocks()) return {shape, values, bands_};
  return {kind_, shape, values, scales};
}

std::string Weight::str() const {
  if (is_four_bits()) return fmt::format("{}{} with scales {}", name_of(kind_), shape_, scales);
  if (is_blocks()) return fmt::format("{}{}", bands_.empty() ? "blocks" : bands_.front().format->name, shape_);
  return is_quantized() ? fmt::format("{} with scales {}", values, scales) : values.str();
}

}  // namespace nought
