// The formats of folders whose codes are floats: FP8 by squares of a matrix, and MXFP4.
#pragma once

#include "nought/quantize/folder_format.h"

namespace nought {

/// fp8: E4M3 with a scale of fp32 for each square, as DeepSeek-V3 has it. mxfp4: E2M1 with a power of two for each 32
/// columns, for a model of the family gpt_oss its stacks of experts as it has them, else matrices as
/// mxfp4-pack-quantized of compressed-tensors. Null for another name.
std::unique_ptr<FolderFormat> make_float_format(std::string_view name, std::string_view family);

}  // namespace nought
