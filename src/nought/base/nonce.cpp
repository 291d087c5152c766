#include "nought/base/nonce.h"

#include <random>

#include <fmt/core.h>

namespace nought {

std::string random_nonce() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

}  // namespace nought
