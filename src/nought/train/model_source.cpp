#include "nought/train/model_source.h"

#include "nought/comm/first_rank.h"
#include "nought/data/tokenizer.h"
#include "nought/io/hub_cache.h"

namespace nought {

namespace {

namespace fs = std::filesystem;

/// The weights of a checkpoint. What its optimizer kept belongs to the run that wrote it.
class CheckpointWeights final : public StateSource {
 public:
  CheckpointWeights(const fs::path& path, const Model& model) : checkpoint_(path, model) {}
  using StateSource::fill;
  void fill(StateKind kind, const Parameter& parameter, std::span<const Interval> elements,
            const Tensor& destination) const override {
    if (kind == StateKind::master) {
      checkpoint_.fill(kind, parameter, elements, destination);
    } else {
      Stream here;
      zero(destination, here);
    }
  }

 private:
  Checkpoint checkpoint_;
};

RunPlan with_folder(RunPlan plan, const fs::path& folder) {
  if (plan.data.tokenizer == plan.model_dir) plan.data.tokenizer = folder.string();
  plan.model_dir = folder.string();
  return plan;
}

}  // namespace

fs::path model_folder(const fs::path& given) {
  std::error_code ignored;
  const auto refuse = [&](std::string_view found) {
    fail<IoError>("{}: expected a Hugging Face folder, a checkpoint or the output folder of a run, found {}",
                  given.string(), found);
  };
  const fs::path path = fs::exists(given, ignored) ? given : hub_snapshot(given.string()).value_or(given);
  if (!fs::exists(path, ignored) && is_hub_name(given.string()))
    refuse(fmt::format("nothing; the hub's cache {0} does not hold it either: \"hf download {1}\" gets it",
                       hub_cache().string(), given.string()));
  if (!fs::is_directory(path, ignored)) refuse(fs::exists(path, ignored) ? "a file" : "nothing");
  require<ConfigError>(!fs::exists(path / "adapter_config.json", ignored),
                       "{}: holds a LoRA adapter (adapter_config.json), which is not applied: merge it into its model "
                       "with peft's merge_and_unload(), save_pretrained() that, and name the folder",
                       path.string());
  if (is_checkpoint(path) || holds_weights(path)) return path;
  if (const std::vector<fs::path> checkpoints = list_checkpoints(path); !checkpoints.empty()) return checkpoints.back();
  if (!fs::is_regular_file(path / "config.json", ignored)) refuse("a folder without config.json and checkpoints");
  return path;
}

fs::path model_folder(const fs::path& path, Communicator& ranks, const Context& context) {
  return found_by_first(ranks, context, [&] { return model_folder(path).string(); });
}

RunPlan with_model_folder(RunPlan plan) {
  return plan.model_dir.empty() ? plan : with_folder(plan, model_folder(plan.model_dir));
}

RunPlan with_model_folder(RunPlan plan, Communicator& ranks, const Context& context) {
  return plan.model_dir.empty() ? plan : with_folder(plan, model_folder(plan.model_dir, ranks, context));
}

ModelSource::ModelSource(const fs::path& path)
    : folder_(model_folder(path)), model_(ModelConfig::from_folder(folder_)) {
  if (nought::is_checkpoint(folder_)) {
    weights_ = std::make_unique<CheckpointWeights>(folder_, model_);
    return;
  }
  auto weights = std::make_unique<HfWeights>(folder_, model_);
  hf_ = weights.get();
  weights_ = std::move(weights);
}

std::string ModelSource::tokenizer() const { return holds_tokenizer(folder_) ? folder_.string() : "bytes"; }

}  // namespace nought
