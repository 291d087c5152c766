// Checkpoints and folders of models that nobody trained, for tests of what reads them.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "support/tiny_llama.h"

#include "nought/checkpoint/checkpoint.h"
#include "nought/models/decoder.h"

namespace nought::test {

/// A checkpoint of thread ranks.
struct SavedModel {
  ModelConfig model = tiny_llama();
  int ranks = 1;
  ShardedModel::Options settings = {};
  CheckpointInfo info = {.step = 3};  // its world_size is `ranks`
  uint64_t seed = 1;                  // of the weights
  std::string weights = "";           // a Hugging Face folder that has them instead
  std::string tokenizer = "";         // beside the weights, with the model's configuration; "": neither
  std::function<void(Decoder&)> prepare = {};

  /// Returns FOLDER/checkpoint-STEP.
  std::filesystem::path save(const std::filesystem::path& folder) const;
};

/// A folder's weights, in f32, whose elements are value(place in the parameter), or 0.
void write_weights(const std::filesystem::path& folder, const ModelConfig& model,
                   const std::function<float(int64_t)>& value = {});

}  // namespace nought::test
