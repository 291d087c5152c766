// Pool: the kinds of memory that a Buffer may lie in.
#pragma once

#include <cstdint>
#include <string_view>

namespace nought {

/// Where bytes live.
enum class Pool : uint8_t {
  device,  // memory of the compute device; RAM where the CPU is the device
  host,    // RAM of the host, which holds what is moved away from the device
  file     // a file, on NVMe
};
inline constexpr int kNumPools = 3;
std::string_view name_of(Pool pool);

}  // namespace nought
