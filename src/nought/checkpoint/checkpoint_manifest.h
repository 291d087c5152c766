// manifest.json of a checkpoint: what it says about its run and where its blocks are, under a checksum of its own.
//
// The checksum covers all members, so it does not depend on white space. It covers the files beside the states too,
// such as config.json, by a checksum of each. Formats from 3 on have it; earlier ones are read without. Format 4 is 3
// with an update that is pending.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nought/base/json.h"
#include "nought/checkpoint/best_model.h"
#include "nought/optim/loss_scaler.h"
#include "nought/zero/local_steps_options.h"
#include "nought/zero/sharded_optimizer.h"

namespace nought {

inline constexpr std::string_view kManifest = "manifest.json";

/// What a checkpoint says of workers that make local steps. Each has skipped steps, a loss scale and numbers of the
/// model of its own; those of CheckpointInfo are the first one's.
struct LocalStepsInfo {
  LocalStepsOptions options = {};
  struct Worker {
    int64_t skipped = 0;
    LossScaler::State loss_scale = {};
    std::vector<double> model_state = {};
  };
  std::vector<Worker> workers = {};
};

/// The model that an adapter was trained on.
struct BaseInfo {
  std::string path;  // where it was
  std::string hash;  // hash of its weights
};

/// What a checkpoint says about its run.
struct CheckpointInfo {
  int64_t step = 0;  // steps of the run, those whose update was skipped included
  int world_size = 1;
  int zero_stage = 0;
  Json run = Json::object();  // seed, train_batch and so on, by name; a resumed run must have the same
  int64_t skipped = 0;        // steps whose update was skipped
  LossScaler::State loss_scale = {};
  std::vector<double> model_state = {};  // Model::state()
  std::optional<bool> validated = {};    // whether the run has validated these weights; earlier versions do not say
  std::optional<PendingUpdate> pending = {};  // the update that was put off; its gradients are among the states
  std::optional<BestModel> best = {};         // the best checkpoint so far, this one included
  std::optional<LocalStepsInfo> local = {};   // of workers that make local steps
  std::optional<BaseInfo> base = {};          // given: it holds an adapter of this model, and not the model
  std::string written_by = {};                // the program's version; "" of earlier ones
  std::string written_at = {};                // see utc_now(); write_manifest() sets it; "" of earlier versions
  Json about = {};                            // what else people want to know: model, optimizer, tokens, epoch
};

/// Writes the manifest of the checkpoint in `folder`, which holds all other files. `blocks` is the list of its blocks,
/// `rank_states` what each rank has for itself (rank_states_json()), or null.
void write_manifest(const CheckpointInfo& info, Json blocks, const std::filesystem::path& folder,
                    const Json& rank_states = {});

/// The manifest, without its checksum. IoError if it cannot be read, is damaged or is of a newer version.
Json read_manifest(const std::filesystem::path& checkpoint);
/// What a manifest says about its run. IoError if it lacks something, or if the folder has the name of another step.
CheckpointInfo info_in(const Json& manifest, const std::filesystem::path& checkpoint);
/// Both together.
CheckpointInfo read_checkpoint_info(const std::filesystem::path& checkpoint);

/// IoError, which names the file, if a file beside the states is not as the run wrote it. Whoever reads these files
/// asks this first; a run that resumes does not read them. Earlier versions do not say, so all is well with theirs.
void check_other_files(const std::filesystem::path& checkpoint);

/// Throws IoError: the manifest is damaged, as a reader of it has found.
[[noreturn]] void fail_damaged(const std::filesystem::path& checkpoint, std::string_view what);

/// The checksum of bytes, as manifests write it.
std::string xxh3_of(std::span<const std::byte> bytes);

}  // namespace nought
