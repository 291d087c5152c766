// Freezing: which parameters a run trains, by patterns of their names.
#pragma once

#include <string>
#include <vector>

namespace nought {

class Model;

/// Patterns are regular expressions (ECMAScript) that are searched for in a parameter's name, as those of parameter
/// groups are.
struct Freezing {
  std::vector<std::string> freeze;     // what matches is not trained
  std::vector<std::string> trainable;  // what matches is trained all the same
  bool codes =
      false;  // matrices and tables that are not trained are kept quantized to 8 bits, where rows are whole blocks
  bool empty() const { return freeze.empty() && trainable.empty(); }
};

/// Chooses what of the model is trained. Do it before its parameters get their storage. Without patterns nothing is
/// changed. ConfigError if a pattern matches no parameter (it names the nearest one), if `trainable` would have no
/// effect, if parameters that form one product are told apart, or if nothing is left to train. Returns the model.
Model& apply(const Freezing& freezing, Model& model);

}  // namespace nought
