// Checkpoints without a topology: each rank writes what it owns of the global tensors, and loading reads what the new
// layout needs of them. So any ZeRO stage, any number of ranks and any mesh loads what any other saved.
//
// A checkpoint is a folder checkpoint-STEP. Its files rank-R.safetensors hold flat fp32 blocks of master weights and
// optimizer states (8-bit states are decoded, which loses nothing), and the values of frozen parameters in their own
// dtype, as if they were master weights. Its manifest.json (checkpoint_manifest.h) maps each parameter and state to
// (file, tensor, interval, xxh3) and says what was frozen. The interval is of the flattened global tensor, or of the
// flattened part of it that the entry's "part" describes: the indices that it has of each dimension. The folder is
// written aside, fsynced and renamed, so it exists whole or not at all. Reading a damaged block is an IoError.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "nought/checkpoint/checkpoint_folders.h"
#include "nought/checkpoint/checkpoint_manifest.h"
#include "nought/checkpoint/checkpoint_writer.h"
#include "nought/io/safetensors.h"
#include "nought/zero/placement.h"
#include "nought/zero/sharded_model.h"

namespace nought {

/// Saves to FOLDER/checkpoint-STEP while the training waits, and returns its path. Collective. Rank 0 calls `add_files`
/// with the unfinished folder, so that it can add files, such as the model's config.json and tokenizer. IoError, the
/// same on all ranks.
std::filesystem::path save_checkpoint(ShardedModel& model, const CheckpointInfo& info,
                                      const std::filesystem::path& folder,
                                      const std::function<void(const std::filesystem::path&)>& add_files = {},
                                      const CheckpointedWorkers& workers = {});

/// The states of a checkpoint, as the start of a run.
class Checkpoint final : public StateSource {
 public:
  /// Reads the manifest, of whatever model. IoError if it does not cover what it names.
  explicit Checkpoint(const std::filesystem::path& path);
  /// Compares it with the model, too: IoError if a parameter is missing or has another shape.
  Checkpoint(const std::filesystem::path& path, const Model& model);

  const CheckpointInfo& info() const { return info_; }
  /// The global shapes of all parameters that it holds, by name.
  const std::map<std::string, Shape>& shapes() const { return shapes_; }
  /// Where the checkpoint is of workers (info().local): fill() gives the inner states of this one from now on, and with
  /// own_masters its weights too, instead of those that all agreed on last.
  void choose_worker(int worker, bool own_masters) { worker_ = worker, own_masters_ = own_masters; }
  /// Where the checkpoint is of an adapter (info().base): what the model's frozen parameters are read from.
  void take_base_from(const StateSource& base) { base_ = &base; }
  std::optional<StoredFourBits> four_bits(const Parameter& parameter) const override {
    return base_ != nullptr && is_of_base(parameter) ? base_->four_bits(parameter) : std::nullopt;
  }
  using StateSource::fill;
  void fill(StateKind kind, const Parameter& parameter, std::span<const Interval> elements,
            const Tensor& destination) const override;
  /// Fills what this rank keeps for itself (ShardedModel::rank_states). Returns "", or a line for the user: what is
  /// dropped or begins anew, and why. The same on all ranks where it is about their mesh.
  std::string fill_rank_states(const ShardedModel& model) const;
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
  void require_fits(const Model& model) const;
  /// ConfigError if one of the two is of an adapter and the other is not.
  void require_same_kind(const Model& model) const;
  /// What an adapter's checkpoint does not hold.
  bool is_of_base(const Parameter& parameter) const { return info_.base && !parameter.trainable; }
  bool is_of_worker(StateKind kind, const Parameter& parameter) const;

  std::filesystem::path path_;
  CheckpointInfo info_;
  Json rank_states_;  // the manifest's; null without any
  const StateSource* base_ = nullptr;
  std::optional<int> worker_;
  bool own_masters_ = false;
  std::map<std::string, Shape> shapes_;
  std::map<std::string, std::vector<Block>> blocks_;  // by "master/NAME"
  std::set<std::string> frozen_;                      // names of parameters
  std::map<std::string, SafetensorsFile> files_;
};

}  // namespace nought
