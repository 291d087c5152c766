// QuantizedWeights: which parameters a model keeps quantized to 8 bits, by patterns of their names.
#pragma once

#include <string>
#include <vector>

namespace nought {

class Model;

/// What of the matrices and tables of the model matches one of the patterns is kept quantized to 8 bits
/// (kernels/weight.h) and is no longer trained; other parameters that match stay as they are. Patterns are those of
/// Freezing. Do it before the parameters get their storage. ConfigError if a pattern matches no matrix or table (it
/// names the nearest parameter), if the rows of one are no whole blocks, or if parameters that form one product are
/// told apart.
void keep_quantized(const std::vector<std::string>& patterns, Model& model);

}  // namespace nought
