// Where a rank keeps the optimizer's masters and states between updates: DeepSpeed's section "offload_optimizer".
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "nought/aio/options.h"
#include "nought/tensor/pool.h"

namespace nought {

struct OffloadOptions {
  /// The most elements that are updated at once: a tile. What DeepSpeed's sub_group_size allows beyond would only take
  /// memory.
  static constexpr int64_t kMostElements = int64_t{4} << 20;

  Pool home = Pool::device;
  std::string folder = {};                     // of the files, if the home is Pool::file; it exists
  int64_t sub_group = kMostElements;           // elements of a tile
  bool reads_ahead = false;                    // the next tile is read while one is updated
  bool writes_behind = false;                  // the last one is written meanwhile
  int64_t buffers = kLeastBuffers;             // of sub_group elements, as DeepSpeed counts them
  static constexpr int64_t kLeastBuffers = 4;  // parameter, gradient and two states
  AioOptions aio = {};

  /// How many tiles are in memory at once.
  int64_t tiles() const {
    if (home == Pool::host) return 2;
    return home == Pool::file ? std::min(tiles_asked_for(), buffers / kLeastBuffers) : 1;
  }
  /// Of a file, with as many buffers as that takes.
  int64_t tiles_asked_for() const { return 1 + (reads_ahead ? 1 : 0) + (writes_behind ? 1 : 0); }
};

}  // namespace nought
