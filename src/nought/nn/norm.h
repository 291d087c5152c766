// Norm: RMS norm or layer norm with its weight.
#pragma once

#include <string>

#include "nought/autograd/functions.h"

namespace nought {

enum class NormKind : uint8_t { rms, layer };

class Norm {
 public:
  struct Options {
    NormKind kind = NormKind::rms;
    int64_t features = 0;
    double eps = 1e-6;
    double weight_offset = 0;  // the weight counts as weight + offset, and starts at 1 - offset
  };
  /// Lets its input through: where a family has no norm.
  Norm() = default;
  /// Declares name.weight, and name.bias for a LayerNorm.
  Norm(Unit& unit, const std::string& name, const Options& options);
  Norm(Unit& unit, const std::string& name, NormKind kind, int64_t features, double eps)
      : Norm(unit, name, Options{.kind = kind, .features = features, .eps = eps}) {}
  Var operator()(Tape& tape, const Var& x) const;

 private:
  Options options_;
  ParameterView weight_, bias_;
};

}  // namespace nought
