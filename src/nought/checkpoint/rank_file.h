// RankFile: the files that one rank writes of a checkpoint: its blocks, what it has for itself, and their entries of
// the manifest. In two turns, which a thread may take while the training goes on: take() reads what changes with the
// next update, and finish() writes the rest. It never talks to other ranks.
#pragma once

#include <atomic>
#include <filesystem>
#include <optional>
#include <vector>

#include "nought/base/json.h"
#include "nought/checkpoint/owned_pieces.h"
#include "nought/io/safetensors_writer.h"

namespace nought {

/// What reads masters and states beside the training.
struct SaveContexts {
  explicit SaveContexts(const Context& training);

  bool on_device = false;  // which the host has no access to: copies from it are begun by the rank's own thread
  Context host, device;    // the same where the device is the host
};

class RankFile {
 public:
  /// Lists what there is now, between steps. What is referred to stays.
  RankFile(ShardedModel& model, LocalSteps* local, bool with_frozen, const SaveRoom& room, const SaveContexts& contexts,
           int rank, std::filesystem::path folder);

  /// Whether something changes as soon as the next step begins: then take() comes before that.
  bool changes_at_once() const { return changes_at_once_; }
  /// Begins to copy what lies on a device; on the rank's own thread.
  void begin_copies();
  /// Copies to the room, and writes what is read where it lies. IoError.
  void take();
  /// Writes the rest; then the files are on disk. IoError.
  void finish();
  /// Both give up soon, from any thread.
  void stop() { stopped_ = true; }

 private:
  void copy_all() const;
  /// What reads the piece.
  const Context& by(const OwnedPiece& piece) const { return piece.on_host ? contexts_.host : contexts_.device; }
  void write(size_t piece);
  /// Elements of a piece where the host reads them.
  Tensor values(size_t piece, Interval elements) const;

  ShardedModel& model_;
  const SaveRoom& room_;
  const SaveContexts& contexts_;
  int rank_;
  std::filesystem::path folder_;
  std::vector<OwnedPiece> pieces_;
  std::vector<Tensor> places_;  // in the room, by piece
  std::vector<RankLocalTensor> own_;
  bool changes_at_once_ = false;
  Event copied_;  // what lies on a device
  std::optional<SafetensorsWriter> writer_;
  std::vector<Json> entries_;  // by piece
  Json own_entries_;
  std::atomic<bool> stopped_ = false;
};

/// The entries of all ranks, on rank 0 when they have finished: the files that held them go.
struct CheckpointEntries {
  Json blocks = Json::array(), own = Json::array();
};
CheckpointEntries take_entries(int ranks, const std::filesystem::path& folder);

}  // namespace nought
