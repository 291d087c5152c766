// AdapterChoices: a model on disk with several adapters beside it, of which each sequence has one or none.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "nought/weights/model_source.h"

namespace nought {

/// An adapter that requests choose by its name.
struct NamedAdapter {
  std::string name;
  AdapterUse use;
};
/// "NAME=FOLDER" or "NAME=FOLDER=SCALE". ConfigError.
NamedAdapter parse_named_adapter(const std::string& text);

class AdapterChoices final : public StateSource {
 public:
  /// The model outlives this object. ConfigError for an adapter that changes more than products of low rank can, or was
  /// trained on another model, and for two of one name; IoError as AdapterWeights.
  AdapterChoices(const ModelSource& model, const std::vector<NamedAdapter>& adapters);

  /// The model's, with the adapters as its choices, in their order.
  const ModelConfig& config() const { return config_; }
  using StateSource::fill;
  void fill(StateKind kind, const Parameter& parameter, std::span<const Interval> elements,
            const Tensor& destination) const override;
  std::optional<StoredFourBits> four_bits(const Parameter& parameter) const override {
    return model_.weights().four_bits(parameter);
  }
  std::optional<StoredBlocks> blocks(const Parameter& parameter) const override {
    return model_.weights().blocks(parameter);
  }

 private:
  /// Where a parameter of a choice is read.
  struct Place {
    const ModelSource* source;
    std::string name;  // in the model that has this adapter alone
  };
  void add(const NamedAdapter& adapter);

  const ModelSource& model_;
  ModelConfig config_;
  std::vector<std::unique_ptr<ModelSource>> sources_;  // the model with each adapter alone
  std::map<std::string, Place, std::less<>> places_;   // by the parameter's name
};

}  // namespace nought
