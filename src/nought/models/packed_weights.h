// PackedWeights: which tensors of a Hugging Face folder hold a parameter in few bits, found by their names.
//
// Design goals: every tensor is checked before its first element is read: one line names what is missing, or has a
// wrong dtype or shape. Shapes follow from the parameter's, so that nothing in a file is believed.
// Non-goals: what the weights are for; GGUF (gguf_weights.h).
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nought/models/packed_tensor.h"
#include "nought/models/quantization_config.h"
#include "nought/models/weight_files.h"

namespace nought {

class PackedWeights {
 public:
  /// A parameter, and the tensors of the files that hold it.
  struct Found {
    PackedTensor tensor;
    std::string format;  // "gptq, 4 bits"
    std::vector<std::string> parts;
  };
  /// `files` must outlive this.
  PackedWeights(const WeightFiles& files, QuantizationConfig config) : files_(files), config_(std::move(config)) {}

  /// The parameter if the folder has it in few bits; nothing if it is dense, or missing. IoError.
  std::optional<Found> find(const std::string& parameter, const Shape& shape) const;

 private:
  class Opener;
  const WeightFiles& files_;
  QuantizationConfig config_;
};

}  // namespace nought
