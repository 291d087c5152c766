// Weights from and to a Hugging Face folder, sharded: every rank reads what it keeps, and rank 0 writes Unit by Unit.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "nought/models/config.h"
#include "nought/models/hf_folder_writer.h"
#include "nought/models/weight_files.h"
#include "nought/zero/sharded_model.h"

namespace nought {

/// The weights of a folder as the start of a run. Checks at once that every parameter is there with its shape; IoError.
class HfWeights final : public StateSource {
 public:
  HfWeights(const std::filesystem::path& folder, const Model& model);
  void fill(StateKind kind, const Parameter& parameter, Interval interval, const Tensor& destination) const override;
  /// Of the stored weights: that of the first parameter.
  DType dtype() const { return dtype_; }
  /// Of one parameter; some checkpoints keep a few in fp32.
  DType dtype_of(const Parameter& parameter) const { return files_.at(stored_name_.at(parameter.name)).dtype; }
  /// How many bytes of the files fill() has read.
  int64_t bytes_read() const { return files_.bytes_read(); }
  /// Tensors of the files that the model has no use for (masks and the like left out).
  const std::vector<std::string>& unused() const { return unused_; }

 private:
  WeightFiles files_;
  std::unordered_map<std::string, std::string> stored_name_;  // parameter -> tensor in the files
  std::vector<std::string> unused_;
  DType dtype_ = DType::f32;
};

/// The parameters of a model as files name them, in the order of the Units, each in the dtype that it is to have there.
std::vector<TensorSpec> weight_specs(const Model& model, const std::function<DType(const Parameter&)>& dtype_of);

/// Writes config.json and, where it is a folder's, the tokenizer: what a folder holds beside its weights.
void export_beside_weights(const ModelConfig& config, DType dtype, const std::string& tokenizer,
                           const std::filesystem::path& folder);

/// Writes the weights in the parameters' dtype, with what belongs beside them, so that transformers and `nought
/// generate` load them. Collective: all ranks call it; rank 0 writes. Never holds more than one whole Unit.
void export_hf_folder(ShardedModel& model, const ModelConfig& config, const std::string& tokenizer,
                      const std::filesystem::path& folder, int64_t max_shard_bytes);

}  // namespace nought
