// keep_stored_codes(): a model for inference keeps the codes that its file has, where the kernels read them.
#pragma once

#include <string>
#include <vector>

#include "nought/weights/model_source.h"

namespace nought {

/// How many matrices and tables of this rank are kept in a format.
struct KeptFormat {
  std::string name;
  int64_t tensors = 0;
};

/// What `source` stores in blocks along its rows, of Q8_0 or another row of the table of formats, or in NF4 or FP4,
/// which products and lookups read as they are (kernels/weight.h), is kept so: in the memory that it takes in the file,
/// with the file's values. Others, matrices whose rows a rank does not hold in whole blocks, those that lie in the file
/// in another order than in the model, and in 4 bits of bitsandbytes those that ranks share, stay dense; so do those
/// that are multiplied with such a one at once. Do it before the parameters get their storage.
/// reads_blocks: the kernels read blocks of all formats; else Q8_0, NF4 and FP4 alone are kept.
/// Returns the formats, by name; none: nothing is kept.
std::vector<KeptFormat> keep_stored_codes(const ModelSource& source, Model& model, bool reads_blocks = true);

/// "q4_k (154 tensors) and q6_k (22)"
std::string describe(const std::vector<KeptFormat>& kept);

}  // namespace nought
