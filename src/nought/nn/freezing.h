// Freezing: which parameters a run trains, by patterns of their names.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nought/kernels/code_kind.h"

namespace nought {

class Model;

/// Patterns are regular expressions (ECMAScript) that are searched for in a parameter's name, as those of parameter
/// groups are.
struct Freezing {
  std::vector<std::string> freeze;     // what matches is not trained
  std::vector<std::string> trainable;  // what matches is trained all the same
  /// Matrices and tables that are not trained are kept so, where they are whole blocks; of 4-bit codes the matrices of
  /// linear layers alone, as bitsandbytes has them.
  std::optional<WeightCodes> codes = {};
  bool empty() const { return freeze.empty() && trainable.empty(); }
};

/// Chooses what of the model is trained. Do it before its parameters get their storage. Without patterns nothing is
/// changed. ConfigError if a pattern matches no parameter (it names the nearest one), if `trainable` would have no
/// effect, if parameters that form one product are told apart, or if nothing is left to train. Returns the model.
Model& apply(const Freezing& freezing, Model& model);

/// What of the model is kept in codes of 4 bits: "56 matrices, 94% of the parameters, are kept in nf4". It names a
/// matrix that is not, because its elements are no whole blocks. "" without such codes.
std::string describe_four_bits(const Model& model);

}  // namespace nought
