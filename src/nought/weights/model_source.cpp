#include "nought/weights/model_source.h"

#include <algorithm>

#include "nought/base/open_file.h"
#include "nought/checkpoint/export_record.h"
#include "nought/comm/first_rank.h"
#include "nought/io/hub_cache.h"
#include "nought/text/tokenizer.h"

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

RunPlan with_folder(RunPlan plan, const FoundModel& found) {
  if (plan.data.tokenizer == plan.model_dir) plan.data.tokenizer = found.folder.string();
  plan.model_dir = found.folder.string();
  plan.model_choice = found.choice;
  plan.model_found = true;
  return plan;
}

/// Settles what the config.json of a model decides.
RunPlan with_facts_of_model(RunPlan plan) {
  const bool wants_buckets = !plan.model_dir.empty() && has_automatic_buckets(plan);
  if (plan.model_dir.empty() && plan.model_config.is_null()) return plan;
  if (plan.data.seq_length != 0 && !wants_buckets) return plan;
  const ModelConfig config = plan.model_dir.empty() ? ModelConfig::from_json(plan.model_config, "model")
                                                    : ModelConfig::from_folder(plan.model_dir);
  if (wants_buckets) plan = with_automatic_buckets(std::move(plan), config.hidden_size);
  if (plan.data.seq_length != 0) return plan;
  plan.data.seq_length = config.max_positions;
  plan.resolved.push_back({"data.seq_length", fmt::format("{}", config.max_positions), kModelLength});
  return plan;
}

/// A checkpoint whose config.json and tokenizer are as the run wrote them. IoError if they are not.
FoundModel of_checkpoint(const fs::path& path, std::string choice = {}) {
  check_files_beside(path);
  return {path, std::move(choice)};
}

/// Exported weights beside checkpoints: the newer of the two. Where an earlier version wrote one of them, and noted no
/// time, the times of the files decide.
FoundModel newest_of(const fs::path& path, const fs::path& checkpoint) {
  const std::optional<ExportRecord> record = read_export_record(path);
  const std::string saved_at = read_checkpoint_info(checkpoint).written_at;
  std::error_code ignored;
  const bool exported_later = record && !saved_at.empty()
                                  ? record->written_at >= saved_at
                                  : fs::last_write_time(path / "config.json", ignored) >=
                                        fs::last_write_time(checkpoint / "manifest.json", ignored);
  const std::string weights = fmt::format("the weights that {} exported{}", path.string(),
                                          record ? fmt::format(" after step {}", record->step) : "");
  if (!exported_later) return of_checkpoint(checkpoint, fmt::format("{}, newer than {}", checkpoint.string(), weights));
  const std::string best =
      record && record->best ? fmt::format(": those of its best checkpoint, of step {}", record->best->step) : "";
  return {path, weights + best};
}

/// " (did you mean FOLDER/run?)": a model in a folder that is none; "" if there is none.
std::string model_within(const fs::path& path) {
  std::error_code ignored;
  std::vector<fs::path> models;
  for (const fs::directory_entry& each : entries_of(path, ignored))
    if (each.is_directory(ignored) &&
        (is_checkpoint(each.path()) || holds_weights(each.path()) || !list_checkpoints(each.path()).empty()))
      models.push_back(each.path());
  return models.empty() ? ""
                        : fmt::format(" (did you mean {}?)", std::min_element(models.begin(), models.end())->string());
}

}  // namespace

FoundModel find_model(const fs::path& given) {
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
  if (is_checkpoint(path)) return of_checkpoint(path);
  const std::vector<fs::path> checkpoints = list_checkpoints(path);
  if (holds_weights(path)) return checkpoints.empty() ? FoundModel{path} : newest_of(path, checkpoints.back());
  if (!checkpoints.empty())
    return of_checkpoint(checkpoints.back(), fmt::format("{}, the last checkpoint there", checkpoints.back().string()));
  if (!fs::is_regular_file(path / "config.json", ignored))
    refuse("a folder without config.json and checkpoints" + model_within(path));
  return {path};
}

FoundModel find_model(const fs::path& path, Communicator& ranks, const Context& context) {
  FoundModel found;
  found.folder = found_by_first(ranks, context, [&] {
    found = find_model(path);
    return found.folder.string();
  });
  return found;
}

RunPlan with_model_folder(RunPlan plan) {
  if (plan.model_found) return plan;
  return with_facts_of_model(plan.model_dir.empty() ? plan : with_folder(plan, find_model(plan.model_dir)));
}

RunPlan with_model_folder(RunPlan plan, Communicator& ranks, const Context& context) {
  if (plan.model_found) return plan;
  return with_facts_of_model(plan.model_dir.empty() ? plan
                                                    : with_folder(plan, find_model(plan.model_dir, ranks, context)));
}

ModelSource::ModelSource(FoundModel found)
    : folder_(std::move(found.folder)), choice_(std::move(found.choice)), model_(ModelConfig::from_folder(folder_)) {
  config().require_loadable(folder_.string());
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
