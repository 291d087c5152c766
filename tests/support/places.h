// Places where tensors live elsewhere than where they are computed with, for tests of what brings and writes them.
#pragma once

#include <array>
#include <cstdint>
#include <numeric>
#include <vector>

#include "nought/tensor/pool.h"

namespace nought::test {

/// guarded: beside a device that the host can not touch.
struct Place {
  Pool pool;
  bool guarded;
};
inline constexpr std::array kPlaces{Place{Pool::host, true}, Place{Pool::file, true}, Place{Pool::file, false}};

/// first, first + 1, ...
inline std::vector<float> values_from(float first, int64_t numel) {
  std::vector<float> values(static_cast<size_t>(numel));
  std::iota(values.begin(), values.end(), first);
  return values;
}

}  // namespace nought::test
