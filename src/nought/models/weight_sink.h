// WeightSink: receives the weights of a model, parameter by parameter, and writes them as some kind of file.
//
// A source of weights (a sharded model, a checkpoint, a folder) streams them into a sink (a Hugging Face folder, a GGUF
// file) and does not know what the sink writes. The sink holds only what it was given last.
#pragma once

#include <string_view>

#include "nought/base/math.h"
#include "nought/tensor/tensor.h"

namespace nought {

class WeightSink {
 public:
  virtual ~WeightSink() = default;
  /// Writes elements of the flattened parameter. `source` has any float dtype. Each element is written exactly once, in
  /// any order: else IoError.
  virtual void write(std::string_view name, Interval elements, const Tensor& source) = 0;
  /// Gives the files their names. IoError if elements are missing. Without this call no file remains.
  virtual void finish() = 0;
};

}  // namespace nought
