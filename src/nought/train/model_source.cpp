#include "nought/train/model_source.h"

namespace nought {

namespace {

namespace fs = std::filesystem;

fs::path folder_of(const fs::path& path) {
  std::error_code ignored;
  require<IoError>(fs::is_directory(path, ignored),
                   "{}: expected a Hugging Face folder, a checkpoint or the output "
                   "folder of a run, found {}",
                   path.string(), fs::exists(path, ignored) ? "a file" : "nothing");
  if (is_checkpoint(path) || holds_weights(path)) return path;
  const std::vector<fs::path> checkpoints = list_checkpoints(path);
  return checkpoints.empty() ? path : checkpoints.back();
}

}  // namespace

ModelSource::ModelSource(const fs::path& path) : folder_(folder_of(path)), model_(ModelConfig::from_folder(folder_)) {
  if (nought::is_checkpoint(folder_)) {
    weights_ = std::make_unique<Checkpoint>(folder_, model_);
    return;
  }
  auto weights = std::make_unique<HfWeights>(folder_, model_);
  hf_ = weights.get();
  weights_ = std::move(weights);
}

}  // namespace nought
