// convert_model: copies the weights of a model from one kind of file to another, block by block.
//
// Design goals: memory is one block, whatever the model's size; what a Hugging Face folder holds comes out as the same
// bytes under the same names; a checkpoint of any number of ranks becomes one model (DeepSpeed's zero_to_fp32).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "nought/models/gguf_model.h"
#include "nought/train/model_source.h"

namespace nought {

struct ConvertOptions {
  /// Of all weights; not given: each keeps its own (a checkpoint's are f32).
  std::optional<DType> dtype = {};
  /// Of a file; more weights than that are sharded.
  int64_t max_shard_bytes = HfFolderWriter::kDefaultShardBytes;
};

struct ConvertReport {
  int64_t tensors = 0;
  int64_t bytes = 0;                    // of weights
  int files = 0;                        // of weights
  std::vector<std::string> notes = {};  // what the reader of the files computes otherwise
};

/// Streams every parameter of `source` into `sink`, at most 16 MiB at a time.
void copy_weights(const ModelSource& source, WeightSink& sink, Memory& memory);

/// Writes `source` as a Hugging Face folder: weights under Hugging Face's names (tied ones once), config.json and
/// tokenizer. ConfigError if `folder` is the source's own.
ConvertReport convert_to_hf(const ModelSource& source, const std::filesystem::path& folder,
                            const ConvertOptions& options, Memory& memory);

/// Writes `source` as one GGUF file, matrices in the given type (see GgufModelWriter), with its tokenizer.
ConvertReport convert_to_gguf(const ModelSource& source, const std::filesystem::path& file, GgufType type,
                              Memory& memory);

}  // namespace nought
