// What would stop a run, found before it starts: one process reads headers and names, and allocates nothing.
#include <algorithm>

#include <unistd.h>

#include "nought/base/json.h"
#include "nought/train/model_source.h"
#include "nought/train/run_data.h"
#include "nought/train/trainer.h"

namespace nought {

namespace fs = std::filesystem;

namespace {

/// Creates the folder that `key` names, and tries to write to it.
void make_writable_folder(const char* key, const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  require<IoError>(!error, "cannot create {} {}: {}", key, folder.string(), error.message());
  require<IoError>(fs::is_directory(folder), "{} {} is not a folder", key, folder.string());
  const fs::path trial = folder / ".writable";
  std::FILE* file = std::fopen(trial.c_str(), "w");
  require<IoError>(file != nullptr, "{} {} is not writable: {}", key, folder.string(),
                   std::error_code(errno, std::generic_category()).message());
  std::fclose(file);
  fs::remove(trial, error);
}

void check_output_folder(const fs::path& folder, StartMode mode) {
  make_writable_folder("training.output_dir", folder);
  const std::vector<fs::path> checkpoints = list_checkpoints(folder);
  if (mode == StartMode::fresh)
    require<ConfigError>(checkpoints.empty(),
                         "{} is there from an earlier run: --resume continues it, --overwrite removes it, or choose "
                         "another training.output_dir",
                         checkpoints.empty() ? "" : checkpoints.back().string());
  if (mode == StartMode::resume) last_checkpoint(folder);
}

/// A run that starts from a checkpoint in its own output folder would lose it before it is read.
void check_not_removed(const fs::path& model, const fs::path& output) {
  std::error_code ignored;
  for (const fs::path& checkpoint : list_checkpoints(output))
    require<ConfigError>(!fs::equivalent(model, checkpoint, ignored),
                         "model is {}, which --overwrite removes: choose another training.output_dir",
                         checkpoint.string());
}

void check_profile_file(const fs::path& file) {
  if (file.empty()) return;
  require<IoError>(!fs::is_directory(file), "flops_profiler.output_file {} is a folder: name a file in it",
                   file.string());
  make_writable_folder("the folder of flops_profiler.output_file,", fs::absolute(file).parent_path());
}

}  // namespace

ModelConfig model_config_of(const RunPlan& plan) {
  ModelConfig config = plan.model_dir.empty() ? ModelConfig::from_json(plan.model_config, "model")
                                              : ModelConfig::from_folder(model_folder(plan.model_dir));
  if (plan.resize_vocab)
    config.vocab_size = std::max(config.vocab_size, tokenizer_of(with_model_folder(plan).data)->vocab_size());
  if (plan.moe_capacity_factor == 0) return config;
  require<ConfigError>(config.experts.has_value(),
                       "training.moe_capacity_factor is {}, but a {} model has no experts: remove it",
                       plan.moe_capacity_factor, config.family);
  config.experts->capacity_factor = plan.moe_capacity_factor;
  config.experts->drop_tokens = plan.moe_drop_tokens;
  return config;
}

RunPlan resolve_run(const RunConfig& config, int world_size, StartMode mode) {
  if (mode != StartMode::resume || !config.training.bf16.automatic()) return resolve(config, world_size);
  const std::vector<fs::path> checkpoints = list_checkpoints(config.training.output_dir.value);
  if (checkpoints.empty()) return resolve(config, world_size);
  const Json run = read_checkpoint_info(checkpoints.back()).run;
  const auto dtype = run.is_object() ? run.value("dtype", std::string()) : std::string();
  return resolve(config, world_size,
                 {dtype == name_of(DType::bf16), fmt::format("{} is in {}", checkpoints.back().string(), dtype)});
}

void validate_run(const RunPlan& given, StartMode mode) {
  require_trainable(given);
  const RunPlan plan = with_model_folder(given);
  Decoder decoder(model_config_of(plan));
  apply(plan.freezing, decoder);
  const auto tokenizer = tokenizer_of(plan.data);
  tokenizer->check_fits(decoder.config().vocab_size);
  check_data(plan.data, *tokenizer);
  check_output_folder(plan.output_dir, mode);
  if (mode == StartMode::overwrite) check_not_removed(plan.model_dir, plan.output_dir);
  if (plan.profile) check_profile_file(plan.profile->output_file);
  if (mode == StartMode::resume) {
    Checkpoint(last_checkpoint(plan.output_dir), decoder).require_same_frozen(decoder);
  } else if (!plan.model_dir.empty()) {
    ModelSource(plan.model_dir);
  }
}

}  // namespace nought
