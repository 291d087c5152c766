// Adapters on disk, as peft writes them: a folder with adapter_config.json and adapter_model.safetensors.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nought/io/safetensors_writer.h"
#include "nought/models/adapter_modules.h"
#include "nought/nn/model.h"
#include "nought/weights/adapted_matrix.h"
#include "nought/zero/state.h"

namespace nought {

inline constexpr const char* kAdapterConfigFile = "adapter_config.json";
inline constexpr const char* kAdapterWeightsFile = "adapter_model.safetensors";

/// True for the folder of an adapter, and for a checkpoint of a run that trains one.
bool holds_adapter(const std::filesystem::path& folder);
/// Its adapter_config.json. IoError, ConfigError.
AdapterConfig read_adapter_config(const std::filesystem::path& folder);
/// The path, or the name in the hub's cache, of the model that it was trained on: relative to its own folder if that
/// leads somewhere. ConfigError if it does not say.
std::filesystem::path base_of_adapter(const std::filesystem::path& folder);
/// base_of_adapter() if that is there; nothing if not, or if the adapter does not say.
std::optional<std::filesystem::path> present_base_of_adapter(const std::filesystem::path& folder);

/// An adapter that a model is read with, and a factor on what it adds.
struct AdapterUse {
  std::filesystem::path folder;
  double scale = 1;
};
/// "FOLDER" or "FOLDER=SCALE". ConfigError.
AdapterUse parse_adapter_use(const std::string& text);

/// What these adapters add to the model together. Several add up: they are one whose ranks are the sums of theirs, and
/// whose B has their scales in it. ConfigError for one that does not fit the model.
ModelAdapter combined_adapter(const std::vector<AdapterUse>& adapters, const ModelConfig& config);

/// The name of a parameter in an adapter's file, where all that is trained lies.
std::string adapter_tensor_name(const Parameter& parameter, const ModelAdapter& adapter);
/// The values of a parameter as its file has them: A of an embedding is turned, and turning twice changes nothing. On
/// the host.
Tensor as_in_file(const Parameter& parameter, const Tensor& values, Memory& memory);
/// The tensors of an adapter's file, sorted by their names: what is trained, and an unchanged copy of a table that it
/// adds to, as peft writes it.
std::vector<TensorSpec> adapter_specs(const Model& model, const ModelAdapter& adapter, DType dtype);
/// Writes what the file has of a parameter, if anything. values: whole, on the host.
void write_adapter_tensor(const Parameter& parameter, const Tensor& values, const ModelAdapter& adapter,
                          SafetensorsWriter& writer, Memory& memory);

/// The values of adapters, and those of the model that they add to.
class AdapterWeights final : public StateSource {
 public:
  /// model: built with combined_adapter(). `base` has the values of all else, and outlives this object. IoError that
  /// names tensors which are missing, of no use, of another shape, or not finite.
  AdapterWeights(const std::vector<AdapterUse>& adapters, const Model& model, const ModelConfig& config,
                 const StateSource& base);
  using StateSource::fill;
  void fill(StateKind kind, const Parameter& parameter, std::span<const Interval> elements,
            const Tensor& destination) const override;
  std::optional<StoredFourBits> four_bits(const Parameter& parameter) const override {
    return saves(parameter) ? std::nullopt : base_.four_bits(parameter);
  }
  std::optional<StoredBlocks> blocks(const Parameter& parameter) const override {
    return saves(parameter) ? std::nullopt : base_.blocks(parameter);
  }

 private:
  struct One {
    SafetensorsFile file;
    ModelAdapter adapter;
    double scale;
  };
  void check(const One& one, const Model& model) const;
  /// Whether the adapter has a parameter of the model whole.
  bool saves(const Parameter& parameter) const {
    return adapters_.size() == 1 && adapters_[0].adapter.saves(parameter.name);
  }
  /// All of a tensor, in the parameter's own layout.
  Tensor read(const One& one, const Parameter& parameter, const Shape& shape) const;
  /// One element after the other of a factor that several adapters have rows or columns of.
  void fill_combined(const Parameter& parameter, Interval elements, const Tensor& destination) const;
  /// A whole factor of all adapters, f32.
  Tensor combined(const Parameter& parameter) const;

  std::vector<One> adapters_;
  const StateSource& base_;
  std::shared_ptr<Memory> memory_;
};

}  // namespace nought
