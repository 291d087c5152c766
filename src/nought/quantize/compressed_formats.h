// The formats of compressed-tensors whose codes are whole numbers.
#pragma once

#include "nought/quantize/folder_format.h"

namespace nought {

/// compressed-tensors: pack-quantized, a stream of codes for each row. int8: int-quantized, a byte for each weight and
/// a scale for each row, with inputs that a reader rounds to 8 bits, token by token (W8A8). Null for another name.
std::unique_ptr<FolderFormat> make_compressed_format(std::string_view name);

/// The quantization_config of a format of compressed-tensors, with one group for all linear layers.
OrderedJson compressed_config(std::string_view format, const OrderedJson& weights, const OrderedJson& inputs,
                              const FolderModules& modules);

}  // namespace nought
