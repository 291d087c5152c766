// Loads a sharded model from a Hugging Face folder and saves it as one. Every rank reads only what it keeps. Rank 0
// writes, Unit by Unit.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "nought/models/config.h"
#include "nought/models/hf_folder_writer.h"
#include "nought/models/weight_files.h"
#include "nought/text/tokenizer.h"
#include "nought/text/tokenizer_export.h"
#include "nought/zero/sharded_model.h"

namespace nought {

/// The weights of a folder, as the start of a run.
class HfWeights final : public StateSource {
 public:
  /// Opens the folder and checks that every parameter is there with its shape, but for an adapter's. IoError.
  HfWeights(const std::filesystem::path& folder, const Model& model);
  using StateSource::fill;
  void fill(StateKind kind, const Parameter& parameter, std::span<const Interval> elements,
            const Tensor& destination) const override;
  /// The dtype in which the first parameter is stored.
  DType dtype() const { return dtype_; }
  /// The dtype in which a parameter is stored, or the first one for what is not. Some folders store a few parameters in
  /// fp32.
  DType dtype_of(const Parameter& parameter) const {
    const auto stored = stored_name_.find(parameter.name);
    return stored == stored_name_.end() ? dtype_ : files_.at(stored->second).dtype;
  }
  /// A hash of the model's weights: the same for the same names, dtypes, shapes and values, in whatever files.
  std::string content_hash() const;
  /// How many bytes of the files fill() has read.
  int64_t bytes_read() const { return files_.bytes_read(); }
  /// Tensors of the files that the model does not use. Known buffers, such as attention masks, are not listed.
  const std::vector<std::string>& unused() const { return unused_; }

 private:
  WeightFiles files_;
  std::unordered_map<std::string, std::string> stored_name_;  // parameter -> tensor in the files
  std::vector<std::string> unused_;
  DType dtype_ = DType::f32;
};

/// Names, dtypes and shapes of a model's parameters for a file, in the order of the Units.
std::vector<TensorSpec> weight_specs(const Model& model, const std::function<DType(const Parameter&)>& dtype_of);

/// The config with `ends` before the tokens at which it stops already; if there are none of either, with the one that
/// ends a document.
ModelConfig with_stop_ids(ModelConfig config, std::span<const int32_t> ends, const Tokenizer& tokenizer);

/// Writes what a folder holds beside its weights: config.json, generation_config.json and the tokenizer. Where the
/// tokenizer's folder has a generation_config.json, its other settings are kept.
void export_companions(const ModelConfig& config, DType dtype, const TokenizerExport& tokenizer,
                       const std::filesystem::path& folder);

/// Writes the weights in the parameters' dtype, with config.json and tokenizer, so that transformers and `nought
/// generate` load them. Collective: all ranks call it, and rank 0 writes. At most one whole Unit is in memory at a
/// time.
void export_hf_folder(ShardedModel& model, const ModelConfig& config, const TokenizerExport& tokenizer,
                      const std::filesystem::path& folder, int64_t max_shard_bytes);

}  // namespace nought
