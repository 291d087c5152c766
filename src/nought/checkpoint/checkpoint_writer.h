// CheckpointWriter: saves checkpoints of a model, beside its training or while that waits.
//
// begin() lists the states as they are. A thread of each rank then reads them, writes them to files and flushes these;
// beside the training it copies what lies on the device first, and the next update of masters and states waits for
// that alone. What is offloaded is read where it lies, and the update waits until all of it is. When all ranks have
// written, rank 0's thread writes the manifest and gives the folder its name: a checkpoint exists whole or not at all,
// whoever dies when.
//
// Design goals: one mechanism, so that checkpoints have the same bytes either way: to save while the training waits is
// begin() and finish(). The threads call no other rank: what all ranks have to know of each other travels in
// advance(), which all of them call after the same steps. Non-goals: two saves at once.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "nought/checkpoint/checkpoint_manifest.h"
#include "nought/checkpoint/rank_file.h"
#include "nought/comm/communicator.h"
#include "nought/zero/local_steps.h"
#include "nought/zero/sharded_model.h"

namespace nought {

/// Workers that make local steps: the ranks of all, and what this one has beside its model. Masters and states of each
/// are then in the checkpoint; what any run may go on from is the weights that they agreed on last.
struct CheckpointedWorkers {
  Communicator* world = nullptr;  // null: the model is on all ranks
  LocalSteps* steps = nullptr;
};

/// What is saved.
struct SaveRequest {
  CheckpointInfo info;
  std::filesystem::path folder;  // gets the folder checkpoint-STEP
  /// Rank 0 adds files to the unfinished folder, such as the model's config.json and tokenizer, on its thread.
  std::function<void(const std::filesystem::path&)> add_files = {};
  bool files_change = false;   // with the next step
  bool states_change = false;  // so may masters and states, whatever the next update waits for
  /// What rank 0 does when the checkpoint has its name, on its thread.
  std::function<void()> then = {};
};

/// How a save has ended, the same on all ranks.
struct SaveOutcome {
  int64_t step = 0;
  std::filesystem::path path;
  std::string failure = {};  // "": it is saved
  double seconds = 0;        // since it began
  double stall = 0;          // in which the training waited, on this rank
};

class CheckpointWriter {
 public:
  /// beside_training: takes the room that copies need, now and for as long as this lives. The model must outlive this
  /// object. with_frozen: unless frozen parameters are an adapter's base.
  CheckpointWriter(ShardedModel& model, const CheckpointedWorkers& workers, bool with_frozen, bool beside_training);
  /// A save under way is given up; nothing of it has a checkpoint's name.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Begins to save the states as they are; none is under way. Collective, as are the next two.
  void begin(SaveRequest request);
  /// Whether a save is under way; the same on all ranks.
  bool under_way() const { return phase_ != Phase::none; }
  /// Looks whether all ranks have come so far that the next thing is to be done; nothing until the save has ended.
  std::optional<SaveOutcome> advance() { return advance(/*waits=*/false); }
  /// Waits for the end of the save under way.
  SaveOutcome finish();

 private:
  enum class Phase : uint8_t { none, writing, publishing };

  std::optional<SaveOutcome> advance(bool waits);
  /// How many ranks are done with the phase, and with how many it failed. Waits for this one if asked to.
  std::pair<int, int> ask_all(bool waits);
  void begin_writing();
  void begin_publishing();
  void publish();
  /// Some rank has failed: what is there of the checkpoint goes.
  std::string give_up();
  SaveOutcome end(std::string failure);

  ShardedModel& model_;
  CheckpointedWorkers workers_;
  Communicator& world_;
  bool with_frozen_;
  SaveContexts contexts_;
  SaveRoom room_;
  // What belongs to the save under way:
  Phase phase_ = Phase::none;
  SaveRequest request_;
  std::filesystem::path path_;
  std::shared_ptr<RankFile> file_;
  Event done_;           // this rank's part of the phase
  std::string failure_;  // why this rank failed before its thread began
  std::chrono::steady_clock::time_point began_ = {};
  double stall_ = 0, waited_before_ = 0;
  Stream thread_;  // the last member: it uses the others
};

}  // namespace nought
