// keep_stored_codes(): a model for inference keeps the codes that its file has, where the kernels read them.
#pragma once

#include "nought/weights/model_source.h"

namespace nought {

/// What `source` stores in blocks of Q8_0, NF4 or FP4, which products and lookups read as they are (kernels/weight.h),
/// is kept so: in a half or a quarter of the memory of 16 bits, with the values of the file. Others, matrices whose
/// rows a rank does not hold in whole blocks, and in 4 bits those that ranks share, stay dense. Do it before the
/// parameters get their storage. Returns whether anything is kept.
bool keep_stored_codes(const ModelSource& source, Model& model);

}  // namespace nought
