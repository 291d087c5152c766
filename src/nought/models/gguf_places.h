// GgufPlaces: where llama.cpp keeps a parameter of a model, for files that are written and for those that are read.
//
// The facts (tensor names, the order of rotated rows, what is added to norms) are those of llama.cpp's conversion
// scripts and src/llama-arch.cpp.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>

#include "nought/models/config.h"
#include "nought/models/gguf_architectures.h"
#include "nought/models/gguf_layouts.h"
#include "nought/models/names.h"
#include "nought/nn/model.h"

namespace nought {

class GgufPlaces {
 public:
  explicit GgufPlaces(const ModelConfig& config);
  /// ConfigError for a parameter that GGUF has no name for.
  GgufPlace of(const Parameter& parameter) const;
  /// Where rows of `width` values lie that stand for the outputs of this weight, in one tensor. ConfigError for a
  /// weight that is cut or turned.
  GgufPlace of_outputs(const Parameter& weight, int64_t width) const;

 private:
  /// Makes the place of what has this shape.
  using Layout = std::function<GgufPlace(const std::string& tensor, const Shape& shape)>;
  /// A tensor of the checkpoint in llama.cpp's words: without its ".weight" or ".bias", or by its whole name.
  struct Target {
    std::string name;
    Layout layout = {};   // none: it lies there as it is
    bool outputs = true;  // whether the layout moves whole rows within one tensor
    int64_t expert = -1;  // its number among stacked ones; -1: they are not stacked
  };
  const Target* find(const Parameter& parameter, std::string& tensor) const;
  void add_layer(int64_t index);
  void add_attention(const WeightNames::Layer& names, const std::string& block);
  void add_latent(const WeightNames::Layer& names, const std::string& block);
  void add_delta(const WeightNames::Layer& names, const std::string& block);
  void add_experts(const WeightNames::Layer& names, const std::string& block);
  void add_fused_experts(const std::string& prefix, const std::string& block);
  void change(const Parameter& parameter, const std::string& tensor, GgufPlace& place) const;

  ModelConfig config_;
  const GgufArchitecture& architecture_;
  std::unordered_map<std::string, Target> targets_;
};

}  // namespace nought
