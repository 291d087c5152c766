// ModelSource: a model on disk, whatever wrote it: a Hugging Face folder, a checkpoint of any number of ranks, or the
// output folder of a run (its exported weights; before there are any, its last checkpoint).
//
// Design goals: one place that knows what a path may be; config, weights and tokenizer come from the same place.
// Non-goals: the states of an optimizer, which weights() leaves zero (Trainer resumes from a Checkpoint).
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "nought/config/run_plan.h"
#include "nought/models/decoder.h"
#include "nought/train/checkpoint.h"
#include "nought/train/hf_folder.h"

namespace nought {

/// The folder that holds the config and the weights of what `path` is: itself, or the last checkpoint in it. IoError
/// that says what was expected and what is there.
std::filesystem::path model_folder(const std::filesystem::path& path);
/// The same folder on every rank: rank 0 looks, so that a run that saves meanwhile cannot part the ranks. Collective.
std::filesystem::path model_folder(const std::filesystem::path& path, Communicator& ranks, const Context& context);

/// The plan with model_folder(model_dir) as its model and, where that is the model's, its tokenizer.
RunPlan with_model_folder(RunPlan plan);
/// The same with the folder that rank 0 finds. Collective if the plan has a model_dir.
RunPlan with_model_folder(RunPlan plan, Communicator& ranks, const Context& context);

class ModelSource {
 public:
  /// Reads the config and all headers, and checks that every parameter is there with its shape. IoError, ConfigError.
  explicit ModelSource(const std::filesystem::path& path);

  /// The folder that holds the config and the weights, and the tokenizer if there is one.
  const std::filesystem::path& folder() const { return folder_; }
  const ModelConfig& config() const { return model_.config(); }
  /// Names and shapes; it has no storage.
  const Decoder& model() const { return model_; }
  const StateSource& weights() const { return *weights_; }
  /// The folder if it holds a tokenizer, else "bytes": a name for make_tokenizer().
  std::string tokenizer() const;
  bool is_checkpoint() const { return hf_ == nullptr; }
  /// In which the weights are stored: a checkpoint holds fp32 masters.
  DType dtype() const { return hf_ ? hf_->dtype() : DType::f32; }
  DType dtype_of(const Parameter& parameter) const { return hf_ ? hf_->dtype_of(parameter) : DType::f32; }
  /// Tensors of the files that the model has no use for.
  std::vector<std::string> unused() const { return hf_ ? hf_->unused() : std::vector<std::string>{}; }

 private:
  std::filesystem::path folder_;
  Decoder model_;
  std::unique_ptr<StateSource> weights_;
  const HfWeights* hf_ = nullptr;  // weights_, unless they are a checkpoint's
};

}  // namespace nought
