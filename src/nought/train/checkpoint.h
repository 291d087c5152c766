// Checkpoints without a topology: each rank writes what it owns of the global tensors, and loading reads what the new
// layout needs of them. So any ZeRO stage, any number of ranks and any mesh loads what any other saved.
//
// A checkpoint is a folder checkpoint-STEP. Its files rank-R.safetensors hold flat fp32 blocks of master weights and
// optimizer states (8-bit states are decoded, which loses nothing), and the values of frozen parameters in their own
// dtype, as if they were master weights. Its manifest.json maps each parameter and state to (file, tensor, interval,
// xxh3) and says what was frozen. The interval is of the flattened global tensor, or of the flattened part of it that
// the entry's "part" describes: the indices that it has of each dimension. The folder is written aside, fsynced and
// renamed, so it exists whole or not at all. Reading a damaged block is an IoError.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "nought/base/json.h"
#include "nought/io/safetensors.h"
#include "nought/optim/loss_scaler.h"
#include "nought/train/best_model.h"
#include "nought/zero/placement.h"
#include "nought/zero/sharded_model.h"

namespace nought {

/// What a checkpoint says about its run.
struct CheckpointInfo {
  int64_t step = 0;  // steps of the run, those whose update was skipped included
  int world_size = 1;
  int zero_stage = 0;
  Json run = {};        // seed, train_batch and so on, by name; a resumed run must have the same
  int64_t skipped = 0;  // steps whose update was skipped
  LossScaler::State loss_scale = {};
  std::vector<double> model_state = {};  // Model::state()
  std::optional<bool> validated = {};    // whether the run has validated these weights; earlier versions do not say
  std::optional<BestModel> best = {};    // the best checkpoint so far, this one included
  std::string written_by = {};           // the program's version; "" of earlier ones
  std::string written_at = {};           // see utc_now(); save_checkpoint() sets it; "" of earlier versions
  Json about = {};                       // what else people want to know: model, optimizer, tokens, epoch
};

/// Saves to FOLDER/checkpoint-STEP and returns its path. Collective. Rank 0 calls `add_beside` with the unfinished
/// folder, so that it can add files, such as the model's config.json and tokenizer. IoError.
std::filesystem::path save_checkpoint(ShardedModel& model, const CheckpointInfo& info,
                                      const std::filesystem::path& folder,
                                      const std::function<void(const std::filesystem::path&)>& add_beside = {});

/// The path of the checkpoint of a step in `folder`, and the step in such a name, or nothing.
std::filesystem::path checkpoint_path(const std::filesystem::path& folder, int64_t step);
std::optional<int64_t> checkpoint_step(const std::filesystem::path& path);
/// True for a complete checkpoint-STEP folder.
bool is_checkpoint(const std::filesystem::path& path);

/// The complete checkpoint-STEP folders in `folder`, ascending by step.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& folder);
/// The last of them. IoError if there is none.
std::filesystem::path last_checkpoint(const std::filesystem::path& folder);
/// What the checkpoint's manifest says about its run. IoError if it cannot be read.
CheckpointInfo read_checkpoint_info(const std::filesystem::path& path);
/// Removes all but the last `keep` checkpoints; 0: removes none. `best` stays, too: it counts as the last but one, so
/// there are two at least if it is not the last. Call it on one rank.
void remove_old_checkpoints(const std::filesystem::path& folder, int64_t keep, const std::filesystem::path& best = {});

/// The states of a checkpoint, as the start of a run.
class Checkpoint final : public StateSource {
 public:
  /// Reads the manifest and compares it with the model: IoError if a parameter is missing or has another shape.
  Checkpoint(const std::filesystem::path& path, const Model& model);

  const CheckpointInfo& info() const { return info_; }
  using StateSource::fill;
  void fill(StateKind kind, const Parameter& parameter, std::span<const Interval> elements,
            const Tensor& destination) const override;
  /// ConfigError that names a parameter if the model trains what was frozen, or the other way round.
  void require_same_frozen(const Model& model) const;

 private:
  /// A block of one state of one parameter, as the manifest lists it.
  struct Block {
    std::string file, tensor;
    std::vector<PartRun> runs;  // where its elements lie in the flattened global tensor; never empty
    std::string xxh3;           // checksum of its bytes
  };
  /// Reads what a block has of the elements. Its checksum is verified first, unless it has none of them.
  void read(const Block& block, std::span<const Interval> elements, const Tensor& destination) const;
  void check_coverage(const std::string& key, int64_t numel) const;

  std::filesystem::path path_;
  CheckpointInfo info_;
  std::map<std::string, std::vector<Block>> blocks_;  // by "master/NAME"
  std::set<std::string> frozen_;                      // names of parameters
  std::map<std::string, SafetensorsFile> files_;
};

}  // namespace nought
