// Packing: places in one block for blocks whose lifetimes are known, with no gap between what lives together.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace nought {

/// A block that is alive from event `begin` to before event `end`.
struct Lifetime {
  int64_t bytes = 0;
  int64_t begin = 0, end = 0;
};

struct Packing {
  std::vector<int64_t> offsets;  // of each block
  int64_t bytes = 0;             // that the arena needs
  int64_t alive = 0;             // the most bytes that are alive at once: no packing needs less
};

/// Places blocks so that none that are alive together overlap. Offsets are multiples of 64 if sizes are. Takes the best
/// of many orders, each of which puts a block into the lowest gap that holds it: finding the least is NP-hard.
Packing pack(std::span<const Lifetime> blocks);

}  // namespace nought
