// Converts the weights of a model from one kind of file to another, 16 MiB at a time.
//
// Design goals: memory does not grow with the model. What a Hugging Face folder holds comes out as the same bytes under
// the same names. A checkpoint of any number of ranks becomes one model, as DeepSpeed's zero_to_fp32 does it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "nought/models/gguf_model.h"
#include "nought/weights/model_source.h"

namespace nought {

struct ConvertOptions {
  /// The dtype of all weights. Not given: each keeps the dtype in which it is stored; a checkpoint stores f32.
  std::optional<DType> dtype = {};
  /// The largest size of a file. More weights than that are written as shards.
  int64_t max_shard_bytes = HfFolderWriter::kDefaultShardBytes;
};

struct ConvertReport {
  int64_t tensors = 0;
  int64_t bytes = 0;                    // the size of the weights
  int files = 0;                        // the files that hold weights
  std::vector<std::string> notes = {};  // one line for each thing that a reader of the files computes differently
};

/// Streams the parameters of `source` that are wanted into `sink`, at most 16 MiB at a time.
void copy_weights(
    const ModelSource& source, WeightSink& sink, Memory& memory,
    const std::function<bool(const Parameter&)>& is_wanted = [](const Parameter&) { return true; });

/// Writes what a folder holds beside its weights, as the source has it. dtype: what config.json says of the weights.
void export_companions_of(const ModelSource& source, DType dtype, const std::filesystem::path& folder,
                          const CarriedTensors* carried = nullptr);

/// Writes `source` as a Hugging Face folder: weights under Hugging Face's names, config.json and tokenizer. A tied
/// weight is written once. ConfigError if `folder` is the folder of the source.
ConvertReport convert_to_hf(const ModelSource& source, const std::filesystem::path& folder,
                            const ConvertOptions& options, Memory& memory);

/// Writes the one adapter that `source` has beside its model as peft writes it: a checkpoint's too. ConfigError for
/// several, which --merge adds up.
ConvertReport convert_to_adapter(const ModelSource& source, const std::filesystem::path& folder, Memory& memory);

/// Writes `source` with its tokenizer as one GGUF file, with matrices in the types of a mixture.
ConvertReport convert_to_gguf(const ModelSource& source, const std::filesystem::path& file, const GgufMixture& types,
                              Memory& memory);

}  // namespace nought
