// WeightSink: where the weights of a model are written, parameter by parameter: a Hugging Face folder, a GGUF file.
//
// Whoever holds weights (a sharded model, a checkpoint, another folder) streams them into a sink without knowing what
// becomes of them; the sink never asks for more than it is given.
#pragma once

#include <string_view>

#include "nought/base/math.h"
#include "nought/tensor/tensor.h"

namespace nought {

class WeightSink {
 public:
  virtual ~WeightSink() = default;
  /// Elements of the flattened parameter, of any float dtype. Every element exactly once, in any order. IoError.
  virtual void write(std::string_view name, Interval elements, const Tensor& source) = 0;
  /// Gives the files their names. IoError if elements are missing. Without it nothing remains.
  virtual void finish() = 0;
};

}  // namespace nought
