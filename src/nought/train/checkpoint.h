// Checkpoints without a topology: each rank writes the intervals that it owns; loading reads the intervals that the new
// layout needs, whatever stage or number of ranks wrote them.
//
// A checkpoint is a folder checkpoint-STEP: rank-R.safetensors with flat fp32 blocks of the states that the
// optimizer has (8-bit states are decoded, which loses nothing) and of the values of frozen parameters, in their own
// dtype; and manifest.json, which maps each parameter and state to (file, tensor, interval, xxh3) and says what was
// frozen. The values are the state "master". It is written aside, fsynced and renamed: it exists whole or not at all. A
// damaged block is an IoError when it is read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "nought/io/safetensors.h"
#include "nought/optim/loss_scaler.h"
#include "nought/zero/sharded_model.h"

namespace nought {

/// What the run was when it saved; resuming compares it with what it is now.
struct CheckpointInfo {
  int64_t step = 0;  // of the run: updates made and skipped
  int world_size = 1;
  int zero_stage = 0;
  nlohmann::json run = {};  // seed, train_batch and the like, by name
  int64_t skipped = 0;      // steps whose update was skipped
  LossScaler::State loss_scale = {};
  std::vector<double> model_state = {};  // Model::state()
};

/// Saves to folder/checkpoint-STEP. Collective. Returns its path. `add_beside` may put further files (the model's
/// config.json, its tokenizer) into the folder before it gets its name; rank 0 calls it.
std::filesystem::path save_checkpoint(ShardedModel& model, const CheckpointInfo& info,
                                      const std::filesystem::path& folder,
                                      const std::function<void(const std::filesystem::path&)>& add_beside = {});

/// True for a complete checkpoint-STEP folder.
bool is_checkpoint(const std::filesystem::path& path);

/// The checkpoint-STEP folders that are complete, ascending by step.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& folder);
/// What the run was when it saved the checkpoint. IoError if the manifest cannot be read.
CheckpointInfo read_checkpoint_info(const std::filesystem::path& path);
/// Removes all but the last `keep` checkpoints (0: none). Call it on one rank.
void remove_old_checkpoints(const std::filesystem::path& folder, int64_t keep);

class Checkpoint final : public StateSource {
 public:
  /// Reads the manifest and compares it with the model: IoError if a parameter is missing or has another shape.
  Checkpoint(const std::filesystem::path& path, const Model& model);

  const CheckpointInfo& info() const { return info_; }
  void fill(StateKind kind, const Parameter& parameter, Interval interval, const Tensor& destination) const override;
  /// ConfigError that names a parameter if the model trains what was frozen, or the other way round.
  void require_same_frozen(const Model& model) const;

 private:
  struct Block {
    std::string file, tensor;
    Interval interval;  // of the flattened parameter
    std::string xxh3;
  };
  void check_coverage(const std::string& key, int64_t numel) const;

  std::filesystem::path path_;
  CheckpointInfo info_;
  std::map<std::string, std::vector<Block>> blocks_;  // "master/NAME" -> ascending by interval
  std::set<std::string> frozen_;                      // names of parameters
  std::map<std::string, SafetensorsFile> files_;
};

}  // namespace nought
