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
#include "nought/models/packed_weights.h"
#include "nought/models/weight_files.h"
#include "nought/text/tokenizer.h"
#include "nought/text/tokenizer_export.h"
#include "nought/weights/carried_tensors.h"
#include "nought/weights/stored_weights.h"
#include "nought/zero/sharded_model.h"

namespace nought {

/// The shapes that a model's tensors have in files, by every name that they may have there. The model outlives it.
WholeShapes whole_shapes(const Model& model);

/// The weights of a folder, as the start of a run.
class HfWeights final : public StoredWeights {
 public:
  /// Opens the folder and checks that every parameter is there with its shape, but for an adapter's. Quantised weights
  /// are decoded as they are read. IoError, ConfigError.
  HfWeights(const std::filesystem::path& folder, const Model& model);
  using StateSource::fill;
  void fill(StateKind kind, const Parameter& parameter, std::span<const Interval> elements,
            const Tensor& destination) const override;
  /// The dtype in which the first dense parameter is stored; quantised ones are decoded to it.
  DType dtype() const override { return dtype_; }
  /// The dtype in which a parameter is stored, or that first one for what is not, or is decoded. Some folders store a
  /// few parameters in fp32.
  DType dtype_of(const Parameter& parameter) const override {
    const auto stored = stored_.find(parameter.name);
    return stored == stored_.end() ? dtype_ : files_.at(stored->second.tensor).dtype;
  }
  /// Where a parameter lies. Error for one that is decoded.
  const StoredPlace& place_of(const Parameter& parameter) const { return stored_.at(parameter.name); }
  std::string content_hash() const override;
  bool decodes(const Parameter& parameter) const override { return packed_.contains(parameter.name); }
  Storage storage_of(const Parameter& parameter) const override;
  std::optional<StoredFourBits> four_bits(const Parameter& parameter) const override;
  std::optional<StoredBlocks> blocks(const Parameter& parameter) const override;
  int64_t num_files() const override { return files_.num_files(); }
  int64_t file_bytes() const override { return files_.file_bytes(); }
  /// How many bytes of the files fill() has read.
  int64_t bytes_read() const { return files_.bytes_read(); }
  /// Tensors of the files that the model does not use. Known buffers, such as attention masks, are not listed.
  const std::vector<std::string>& unused() const override { return unused_; }
  const CarriedTensors* carried() const override { return carried_ ? &*carried_ : nullptr; }

 private:
  void check(const Parameter& parameter);
  /// A parameter that is a part of a tensor of all experts of its layer. IoError for one of another shape.
  std::optional<StoredPlace> within_experts(const Parameter& parameter) const;
  /// Parts what the model leaves: what is carried through, and what is unused.
  void carry(const std::filesystem::path& folder, const std::vector<std::string>& left, bool quantized);
  std::string hash_of(const std::string& tensor) const;

  WeightFiles files_;
  std::unordered_map<std::string, StoredPlace> stored_;           // by parameter
  std::unordered_map<std::string, PackedWeights::Found> packed_;  // parameters that are stored in few bits
  std::vector<std::string> unused_;
  std::optional<CarriedTensors> carried_;
  DType dtype_ = DType::f32;
};

/// Names, dtypes and shapes of a model's parameters for a file, in the order of the Units.
std::vector<TensorSpec> weight_specs(const Model& model, const std::function<DType(const Parameter&)>& dtype_of);

/// The config with `ends` before the tokens at which it stops already; if there are none of either, with the one that
/// ends a document.
ModelConfig with_stop_ids(ModelConfig config, std::span<const int32_t> ends, const Tokenizer& tokenizer);

/// Writes what a folder holds beside its weights: config.json, generation_config.json and the tokenizer. Where the
/// tokenizer's folder has a generation_config.json, its other settings are kept. carried: the config.json is that of
/// the whole folder, and the files for images are copied.
void export_companions(const ModelConfig& config, DType dtype, const TokenizerExport& tokenizer,
                       const std::filesystem::path& folder, const CarriedTensors* carried = nullptr);

/// Writes the weights in the parameters' dtype, with config.json and tokenizer, so that transformers and `nought
/// generate` load them. Collective: all ranks call it, and rank 0 writes. At most one whole Unit is in memory at a
/// time. origin: the folder that the run began with, of which the rest is carried through; "" for none.
void export_hf_folder(ShardedModel& model, const ModelConfig& config, const TokenizerExport& tokenizer,
                      const std::filesystem::path& folder, int64_t max_shard_bytes,
                      const std::filesystem::path& origin = {});

}  // namespace nought
