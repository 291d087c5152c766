// LinearCut: which side of a layer's products is cut over ranks (arXiv 1909.08053).
#pragma once

#include <cstdint>

namespace nought {

enum class LinearCut : uint8_t {
  none,
  outputs,  // each rank forms its columns of y; x is the same on all
  inputs    // each rank has its columns of x; y is the sum over the ranks, to which b is added once
};

}  // namespace nought
