// Where a rank keeps the optimizer's masters and states between updates, and parameters between the passes that read
// them: DeepSpeed's sections "offload_optimizer" and "offload_param".
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "nought/offload/tier.h"

namespace nought {

struct OffloadOptions {
  /// The most elements that are updated at once: a tile. What DeepSpeed's sub_group_size allows beyond would only take
  /// memory.
  static constexpr int64_t kMostElements = int64_t{4} << 20;

  OffloadTier tier = {};
  int64_t sub_group = kMostElements;           // elements of a tile
  bool reads_ahead = false;                    // the next tile is read while one is updated
  bool writes_behind = false;                  // the last one is written meanwhile
  int64_t buffers = kLeastBuffers;             // of sub_group elements, as DeepSpeed counts them
  static constexpr int64_t kLeastBuffers = 4;  // parameter, gradient and two states
  /// Segments may be updated overlapped with the backward pass as their gradients become final.
  bool early = false;
  /// Such an update can be undone to the bit: it writes states beside those of before, and takes their place when the
  /// step has found that nothing stands against it (UpdateLane).
  bool undo = false;
  /// Given: every update after so many is put off by one step, and computed overlapped with the step between.
  std::optional<int64_t> delay_after = {};
  double ratio = 1;  // the share of the tiles that do not stay on the device
  /// With files: the sums of gradients are in the file too, between the backward pass of their Unit and the update.
  bool gradients_in_file = false;

  /// How many of all tiles stay on the device: the first ones, as in DeepSpeed's Twin-Flow.
  int64_t staying(int64_t tiles) const { return static_cast<int64_t>((1 - ratio) * static_cast<double>(tiles)); }

  /// True if no tile stays on the device: beside one that it can not touch, the host updates all.
  bool updates_all() const { return tier.pool != Pool::device && ratio == 1; }

  /// Where sums of gradients are that wait for the update. What is set aside for an update that is put off stays in
  /// memory.
  Pool gradients() const {
    if (!updates_all()) return Pool::device;
    return tier.pool == Pool::file && gradients_in_file && !delay_after ? Pool::file : Pool::host;
  }

  OffloadTier gradient_tier() const { return {gradients(), tier.folder, tier.aio}; }

  /// How many tiles are in memory at once.
  int64_t tiles() const {
    if (tier.pool == Pool::host) return 2;
    return tier.pool == Pool::file ? std::min(tiles_asked_for(), buffers / kLeastBuffers) : 1;
  }
  /// Tiles of states in a file, if there are as many buffers as that takes.
  int64_t tiles_asked_for() const { return 1 + (reads_ahead ? 1 : 0) + (writes_behind ? 1 : 0); }
};

/// Where parameters are between the passes that read them, which takes parameter sharding (stage 3).
struct ParameterOffload {
  OffloadTier tier = {};
  int64_t buffers = 5;                // of so many elements each: Units that are on their way to the device fill them
  int64_t buffer_size = 100'000'000;  // elements; a larger Unit fills several
  int64_t in_memory = 0;              // with files: so many elements stay in memory, the first segments that fit
};

}  // namespace nought
