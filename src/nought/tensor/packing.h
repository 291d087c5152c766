// pack(): gives blocks whose lifetimes are known their offsets in one arena, with little or no room lost between them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace nought {

/// The size of a block and when it is in use: from moment `begin` to before moment `end`, on a clock of requests.
struct Lifetime {
  int64_t bytes = 0;
  int64_t begin = 0, end = 0;
};

struct Packing {
  std::vector<int64_t> offsets;  // the place of each block
  int64_t bytes = 0;             // the size of the arena
  int64_t alive = 0;             // the most bytes in use at once: no packing needs less
};

/// Places the blocks so that no two that are in use together overlap. Offsets are multiples of 64 if the sizes are. The
/// smallest arena is NP-hard to find. So pack() tries many orders, puts each block into the lowest gap that holds it,
/// and takes the best result.
Packing pack(std::span<const Lifetime> blocks);

}  // namespace nought
