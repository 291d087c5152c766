// Writes a model as a folder of bitsandbytes: linear layers in codes of 4 bits, all else as it is.
#pragma once

#include <filesystem>

#include "nought/kernels/code_kind.h"
#include "nought/weights/convert.h"

namespace nought {

/// The matrices of linear layers, but those of the head, routers and experts, become codes of `kind` with double
/// quantization, with the bytes that bitsandbytes makes; config.json says so. Others keep their dtype, or that of the
/// options. ConfigError for a model whose matrices are [in, out], and if `folder` is the folder of the source.
ConvertReport convert_to_four_bits(const ModelSource& source, const std::filesystem::path& folder, CodeKind kind,
                                   const ConvertOptions& options, Memory& memory);

}  // namespace nought
