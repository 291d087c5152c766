// Norm: RMS norm or layer norm with its weight.
#pragma once

#include <string>

#include "nought/autograd/functions.h"
#include "nought/parallel/tensor_ranks.h"

namespace nought {

enum class NormKind : uint8_t {
  rms,   // RMS norm (arXiv 1910.07467): a weight
  layer  // layer norm (arXiv 1607.06450): a weight, and perhaps a bias
};

class Norm {
 public:
  struct Options {
    NormKind kind = NormKind::rms;
    int64_t features = 0;
    double eps = 1e-6;
    double weight_offset = 0;  // the factor is weight + offset; the weight starts at 1 - offset
    bool bias = true;          // of a layer norm
    TensorRanks slicing = {};  // see ModelRanks: each forms a part of the gradients
  };
  /// A norm that returns its input, for families that have none here.
  Norm() = default;
  /// Declares NAME.weight, and NAME.bias for a layer norm that has one.
  Norm(Unit& unit, const std::string& name, const Options& options);
  Norm(Unit& unit, const std::string& name, NormKind kind, int64_t features, double eps)
      : Norm(unit, name, Options{.kind = kind, .features = features, .eps = eps}) {}
  Var operator()(Tape& tape, const Var& x) const;

 private:
  Options options_;
  ParameterView weight_, bias_;
};

}  // namespace nought
