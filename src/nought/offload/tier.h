// OffloadTier: where tensors are while nobody computes with them. Plain values, no tensors.
#pragma once

#include <string>

#include "nought/aio/options.h"
#include "nought/tensor/pool.h"

namespace nought {

struct OffloadTier {
  Pool pool = Pool::device;
  std::string folder = {};  // of files, if that is Pool::file; it exists
  AioOptions aio = {};      // how these are read and written

  friend bool operator==(const OffloadTier&, const OffloadTier&) = default;
};

}  // namespace nought
