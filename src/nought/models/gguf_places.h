// GgufPlaces: where llama.cpp keeps a parameter of a model, for files that are written and for those that are read.
//
// The facts (tensor names, the order of rotated rows, what is added to norms) are those of llama.cpp's
// convert_hf_to_gguf.py and src/llama-arch.cpp.
#pragma once

#include <string>
#include <unordered_map>

#include "nought/models/config.h"
#include "nought/nn/model.h"

namespace nought {

/// Where the elements of a parameter are. The file has (x + offset) * factor.
struct GgufPlace {
  std::string tensor;
  Shape shape;                // the whole tensor has it: experts are stacked
  int64_t first = 0;          // the element of the tensor at which the parameter begins
  int64_t row = 1;            // elements of a row
  int64_t head = 0;           // rows of a head, if the rows of its halves are interleaved; 0: they keep their order
  int64_t heads_of_each = 0;  // rows [head][q, k, v][head_dim] become [q, k, v][head][head_dim]
  int64_t head_dim = 0;
  bool transposed = false;  // rows become columns
  float offset = 0, factor = 1;

  bool keeps_order() const { return head == 0 && heads_of_each == 0; }
  /// The row of the tensor that holds a row of the parameter.
  int64_t target_row(int64_t row_index) const;
};

class GgufPlaces {
 public:
  explicit GgufPlaces(const ModelConfig& config);
  /// ConfigError for a parameter that GGUF has no name for.
  GgufPlace of(const Parameter& parameter) const;

 private:
  /// A tensor of the checkpoint without its ".weight" or ".bias", in llama.cpp's words; `expert` of stacked experts.
  struct Target {
    std::string name;
    int64_t expert = -1;
  };
  void add_layer(int64_t index);
  void add_experts(int64_t index);

  ModelConfig config_;
  std::unordered_map<std::string, Target> targets_;
};

}  // namespace nought
