// ModelSource: a model on disk. Its path is a Hugging Face folder, a GGUF file, a checkpoint of any number of ranks, or
// the output folder of a run. An output folder stands for its newest weights: those it exported, or its last
// checkpoint. What is no path may be the name of a model in the hub's cache (io/hub_cache.h).
//
// Design goals: one place knows what the path of a model may be. Config, weights and tokenizer come from the same
// folder.
// Non-goals: optimizer states, which weights() sets to 0. Trainer resumes from a Checkpoint.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "nought/checkpoint/checkpoint.h"
#include "nought/config/run_plan.h"
#include "nought/models/decoder.h"
#include "nought/weights/adapter_files.h"
#include "nought/weights/hf_folder.h"

namespace nought {

/// The folder, or the GGUF file, that holds config and weights of a model.
struct FoundModel {
  std::filesystem::path folder;
  /// For an output folder, what was chosen in it and why: "out/checkpoint-150, newer than the weights that out exported
  /// after step 100". "" where there was nothing to choose.
  std::string choice = {};
  /// What the model is read with.
  std::vector<AdapterUse> adapters = {};
};
/// What the path of a model means: the path itself, the last checkpoint in it if that is newer than the weights there,
/// or the snapshot of a model "Org/Name" in the hub's cache; of an adapter, the model that it was trained on, with the
/// adapter. IoError says what was expected and what is there.
/// base: of an adapter, the model in place of the one that it names; "" = that one. ConfigError where there is no
/// adapter.
FoundModel find_model(const std::filesystem::path& path, const std::filesystem::path& base = {});
/// Finds the folder for every rank: rank 0 looks, so that a run that saves meanwhile cannot part the ranks. Only rank 0
/// gets the choice, so that it is said once. Collective.
FoundModel find_model(const std::filesystem::path& path, Communicator& ranks, const Context& context,
                      const std::filesystem::path& base = {});
/// ConfigError if an adapter names a model which is there, and whose weights are others than those of `model`, the
/// folder of one. What is somewhere else, or cannot be found, may be a copy.
void require_base(const std::filesystem::path& adapter, const std::filesystem::path& model);

/// The plan with the folder that find_model() finds in place of model_dir, also where the tokenizer is the model's.
/// with_length_of() it; buckets that are "auto" get their size.
/// Once is enough: a plan that went through it stays as it is.
RunPlan with_model_folder(RunPlan plan);
/// The plan with sequences as long as the model has positions, where nothing says how long; texts and answers without
/// an alignment.max_length are no longer than that. ConfigError if no token is left for a prompt.
RunPlan with_length_of(RunPlan plan, const ModelConfig& config);
/// ConfigError, by the key that says how long sequences are, if they are longer than the model has learned positions.
void require_positions(const RunPlan& plan, const Decoder& model);
/// The plan with the folder that rank 0 finds. Collective if the plan has a model_dir.
RunPlan with_model_folder(RunPlan plan, Communicator& ranks, const Context& context);

/// Where a ModelSource has the adapters that its model is read with.
enum class AdaptersAre : uint8_t {
  beside,  // as parameters of their own: config() has them
  merged   // in the weights that they add to
};

/// Whether a ModelSource reads the head of its model.
enum class HeadIs : uint8_t { read, left_out };

class ModelSource {
 public:
  /// Reads the config and all headers, and checks that every parameter is there with its shape. IoError, ConfigError.
  explicit ModelSource(const std::filesystem::path& path) : ModelSource(find_model(path)) {}
  /// Reads a folder that was found already.
  explicit ModelSource(FoundModel found, AdaptersAre are = AdaptersAre::beside, HeadIs head = HeadIs::read);

  /// See FoundModel.
  const std::string& choice() const { return choice_; }
  /// The folder, or the file, that holds the config and the weights, and the tokenizer if there is one.
  const std::filesystem::path& folder() const { return folder_; }
  const ModelConfig& config() const { return model_.config(); }
  /// The model's parameters by name and shape, without storage.
  const Decoder& model() const { return model_; }
  const StateSource& weights() const { return weights_ ? *weights_ : *base_; }
  /// The folder if it holds a tokenizer, else "bytes": a name for make_tokenizer().
  std::string tokenizer() const;
  bool is_checkpoint() const { return files_ == nullptr; }
  const std::vector<AdapterUse>& adapters() const { return adapters_; }
  /// A hash of the model's own weights, without adapters: the same for the same values, however they are spread over
  /// files.
  std::string weights_hash() const;
  /// The dtype in which the weights are stored. A checkpoint stores fp32 master weights.
  DType dtype() const { return files_ ? files_->dtype() : DType::f32; }
  DType dtype_of(const Parameter& parameter) const { return files_ ? files_->dtype_of(parameter) : DType::f32; }
  /// How the weights of a folder or a GGUF file are stored; null for a checkpoint.
  const StoredWeights* stored() const { return files_; }
  /// Tensors of the files that the model does not use.
  std::vector<std::string> unused() const { return files_ ? files_->unused() : std::vector<std::string>{}; }

 private:
  std::unique_ptr<StateSource> with_adapters(AdaptersAre are, HeadIs head);

  std::filesystem::path folder_;
  std::string choice_;
  std::vector<AdapterUse> adapters_;
  Decoder model_;
  std::unique_ptr<Decoder> stored_;       // the model as the folder has it, if that has another head than model_ has
  std::unique_ptr<StateSource> base_;     // the weights of the folder
  std::unique_ptr<StateSource> started_;  // base_ without what the adapter began with; null: that is base_
  std::unique_ptr<Decoder> adapted_;      // where adapters are merged: the model with them beside
  std::unique_ptr<StateSource> weights_;  // null if they are base_
  const StoredWeights* files_ = nullptr;  // that base_ reads; null for a checkpoint
};

}  // namespace nought
